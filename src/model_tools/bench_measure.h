// bench_measure.h - the speed of an engine: one timed run of reading a prompt, of generating, or of both.
//
// Tokens are random ids and sampling is greedy, so that no text and no tokenizer is needed. A run at a depth
// begins with that number of tokens already in the session, which are not timed.
#pragma once
#include "base/err.h"
#include "ingot.h"
#include "model_tools/model_adapters.h"

struct bench_test {
    uint32_t n_prompt, n_gen, depth;
    bool (*goes_on)(void); // asked between steps; false ends the run with ERR_CANCELLED. May be NULL
};

struct bench_sample {
    double ms;             // from submission to the last token
    double first_token_ms; // to the first
    double *gaps_ms;       // [n_gaps] between tokens; room for n_gen, given by the caller
    uint32_t n_gaps;
};

struct bench_measure {
    struct ingot_engine *engine;
    struct ingot_session *session; // NULL: depth 0
    struct bench_test test;
    uint32_t *tokens; // [depth + max(n_prompt, 1)]
    uint32_t n_vocab, n_runs;
    struct ingot_adapter_use adapters[MODEL_ADAPTERS]; // [n_adapters] of the engine, all of them
    size_t n_adapters;
};

// Prepares a test: reads `depth` tokens into a session. bench_measure_end frees it.
bool bench_measure_begin(struct bench_measure *m, struct ingot_engine *engine, const struct bench_test *test,
                         struct err *err);
void bench_measure_end(struct bench_measure *m);
bool bench_measure_run(struct bench_measure *m, struct bench_sample *sample, struct err *err);

// Token `at` of a run: a fixed sequence, different for every run, so that none finds its prompt already in a
// session.
uint32_t bench_token(uint32_t n_vocab, uint64_t run, uint64_t at);

// Tokens of context that the test needs.
uint32_t bench_test_context(const struct bench_test *test);
// Tokens that the test counts: of the prompt and generated.
uint32_t bench_test_tokens(const struct bench_test *test);
