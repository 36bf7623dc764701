// prefill_budget.h - how many prefill rows a step may carry beside decode rows, or how long it may encode
// pictures beside them.
//
// Without a limit, a prompt of 32k tokens stretches every step to that of a full batch, and every stream
// stutters until the prompt is read. The budget comes from measurements: the time of a step of decode rows
// alone, and the time that so many prefill rows add, by their number, since on a GPU a few rows cost as much
// as a hundred, and a size that was not tried yet is tried once. Rows cost more at higher positions, so all
// are running averages. A step below sixteen milliseconds is never limited: sixty tokens a second are
// faster than anyone reads, and prompts in small chunks are read many times slower. Results do not depend on
// the budget: every chunk size gives the same bits.
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { PREFILL_SIZES = 32 };
struct prefill_size { // mixed steps of more than half of 2^i prefill rows and at most all; 0 rows: none yet
    double rows, ns;  // ns: beyond the decode rows
};

struct prefill_budget {
    double stretch;   // longest step, as a multiple of a step of decode rows alone; 0: no limit
    double decode_ns; // a step of decode rows alone; 0: not measured
    uint32_t n_mixed; // steps with more than decode rows since decode_ns was measured
    struct prefill_size sizes[PREFILL_SIZES];
};

// The number of prefill rows, at most `most`. 0: this step measures decode_ns.
uint32_t prefill_budget_rows(const struct prefill_budget *p, uint32_t n_decode, uint32_t most);
// Nanoseconds that the encoder may add to a step. INFINITY: no limit. 0: this step measures decode_ns.
double prefill_budget_ns(const struct prefill_budget *p, uint32_t n_decode);
void prefill_budget_note_encoding(struct prefill_budget *p, uint32_t n_decode); // in place of the step's time
// the time of a step
void prefill_budget_note(struct prefill_budget *p, uint32_t n_decode, uint32_t n_prefill, uint64_t ns);
