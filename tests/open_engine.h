// open_engine.h - an engine for a test that goes no further without one.
#pragma once
#include "ingot.h"
#include "testing.h"

static inline struct ingot_engine *open_or_fail(const struct ingot_engine_options *options)
{
    struct ingot_error error = { 0 };
    struct ingot_engine *engine = ingot_engine_open(options, &error);

    if (!engine)
        fail_msg("%s", error.message);
    return engine;
}

// Greedy, and of just so many tokens.
static inline struct ingot_request_options greedy_request(const uint32_t *tokens, size_t n, uint32_t n_new)
{
    struct ingot_request_options r = ingot_request_defaults();

    r.tokens = tokens;
    r.n_tokens = n;
    r.max_tokens = n_new;
    r.ignore_eos = true;
    r.sampling.temperature = 0;
    return r;
}
