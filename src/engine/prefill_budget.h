// prefill_budget.h - how many prefill rows a step may carry beside decode rows, or how long it may encode
// pictures beside them.
//
// Without a limit, a prompt of 32k tokens stretches every step to that of a full batch, and every stream
// stutters until the prompt is read. The budget comes from measurements: the time of a step of decode rows
// alone, and the time that a prefill row adds. A row costs more at higher positions, so both are running
// averages. A step below one millisecond is never limited: the delay is not visible, and a small model that
// reads its prompt in small chunks runs at half its speed. Results do not depend on the budget: every chunk
// size gives the same bits.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct prefill_budget {
    double stretch;           // longest step, as a multiple of a step of decode rows alone; 0: no limit
    double decode_ns, row_ns; // a step of decode rows alone; each prefill row. 0: not measured
    uint32_t last_rows;       // prefill rows of the last mixed step
    uint32_t n_mixed;         // steps with more than decode rows since decode_ns was measured
};

// The number of prefill rows, at most `most`. 0: this step measures decode_ns.
uint32_t prefill_budget_rows(const struct prefill_budget *p, uint32_t n_decode, uint32_t most);
// Nanoseconds that the encoder may add to a step. INFINITY: no limit. 0: this step measures decode_ns.
double prefill_budget_ns(const struct prefill_budget *p, uint32_t n_decode);
void prefill_budget_note_encoding(struct prefill_budget *p, uint32_t n_decode); // in place of the step's time
// the time of a step
void prefill_budget_note(struct prefill_budget *p, uint32_t n_decode, uint32_t n_prefill, uint64_t ns);
