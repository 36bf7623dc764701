// load_generator.h - drives a server that speaks OpenAI's chat completions with many clients at once, and
// measures what each client sees.
//
// Every client sends its next request as soon as the last one ended: a closed loop. Answers are streamed and
// have a fixed length. Prompts differ from the first word on, so that no prefix cache helps. A time is taken
// whenever a piece of text arrives.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

struct load_options {
    const char *url, *key; // key: NULL: none
    uint32_t n_clients, n_requests, n_words,
        n_tokens; // requests: of all clients together; words of a prompt; tokens of an answer
    uint64_t seed;
};

struct load_times { // milliseconds, sorted by load_run
    double *at;
    uint32_t n, capacity;
};

struct load_result {
    uint32_t n_clients;
    uint32_t n_whole, n_refused, n_cut, n_failed; // 429 or 503; streams without an end; anything else
    uint64_t n_tokens;                            // as the server counts them, else pieces of text
    double seconds;
    struct load_times first, gaps; // to the first piece of an answer, and between pieces
    char problem[256];             // of the first request that failed; empty: none
};

// False: nothing could be measured. The result is to be released either way.
bool load_run(const struct load_options *options, struct load_result *result, struct err *err);
void load_release(struct load_result *result);
// Plots several results over the number of clients: throughput, and the times that clients wait.
bool load_plot(const char *path, const struct load_result *results, uint32_t n, struct err *err);
