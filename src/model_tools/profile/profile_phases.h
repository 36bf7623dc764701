// profile_phases.h - the five phases of a profile: requests as a user sends them, and their latencies.
//
//   warm-up    the first request of a fresh engine, the second, the third, and five more
//   outputs    answers of 5, 10, 20 and 50 tokens
//   inputs     prompts of 4, 8, 16, 512 and 4096 tokens
//   sustained  ten answers one after the other
//   streams    1, 2, 4, 8 and 16 answers at the same time
// Prompts are random ids, sampling is greedy, and no answer ends early. Time to first token: from submission
// to the first id on the host.
#pragma once
#include "base/err.h"
#include "ingot.h"

enum profile_phase { PHASE_WARM_UP, PHASE_OUTPUTS, PHASE_INPUTS, PHASE_SUSTAINED, PHASE_STREAMS, N_PHASES };
enum { PHASES_MOST_CASES = 32, PHASES_MOST_STREAMS = 16 };

struct phase_case {
    enum profile_phase phase;
    char name[24];                       // "cold", "output 20", "16 streams"
    uint32_t n_prompt, n_gen, n_streams; // tokens of each request; requests at the same time
    uint32_t n_wanted, n_runs;           // runs; so far
    uint64_t *begun_ns;                  // [n_runs] on base/clock.h's clock
    double *first_ms;                    // [n_runs * n_streams]
    double *run_ms;                      // [n_runs], from submission to the last token of all
    double *gaps_ms;                     // [n_gaps] between tokens of a request
    uint32_t n_gaps;
};

struct phases {
    struct phase_case cases[PHASES_MOST_CASES]; // [n]
    uint32_t n;
    char left_out[96]; // "inputs of 512 and more: the context has 256 tokens", or empty
};

struct phases_request {
    struct ingot_engine *engine; // fresh: nothing has run on it
    bool brief;                  // fewer runs, and inputs of at most 512 tokens
    // Asked after each run; false ends with ERR_CANCELLED.
    bool (*goes_on)(void *arg, const struct phase_case *c);
    void *arg;
};

// Runs a case of one stream for some seconds and keeps no times.
bool phases_repeat(const struct phases_request *request, const struct phase_case *like, double seconds,
                   uint32_t *n_runs, struct err *err);
const char *phase_name(enum profile_phase phase);
// Tokens of context, and of all pages, that the phases can use of a model with n_context.
uint32_t phases_context(bool brief, uint32_t n_context);
uint32_t phases_kv_tokens(bool brief, uint32_t n_context);
// What was measured stays in *phases after an error, too. phases_free frees it.
bool phases_run(const struct phases_request *request, struct phases *phases, struct err *err);
void phases_free(struct phases *phases);

// Of all runs of a case. speed: tokens per second of all its streams together, of the median run.
double phase_first_ms(const struct phase_case *c); // median
double phase_speed(const struct phase_case *c);
// By nearest rank. Negative where the samples are too few to say: below 20 for P95, below 100 for P99.
double phase_gap_ms(const struct phase_case *c, double q);

struct phases_summary {
    double cold_ms, warm_ms; // to the first token
    double peak_ts, sustained_ts, streams_ts;
    double drift; // of ten runs: the last three's median time over that of the first three
    double fitted_ms, fitted_token_ms; // an answer of n tokens takes fitted_ms + n * fitted_token_ms
};
struct phases_summary phases_summarise(const struct phases *phases);
