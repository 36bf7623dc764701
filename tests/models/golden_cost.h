// golden_cost.h - what a token of an answer costs: a play, a submission, a wait, four bytes read back, and no
// memory.
#pragma once
#include "engine/api.h"
#include "models/golden.h"

static inline void answer_tokens(struct ingot_engine *engine, uint32_t n)
{
    static const uint32_t prompt[] = { 5 };
    struct ingot_request_options r = ingot_request_defaults();
    struct ingot_error error = { 0 };

    r.tokens = prompt;
    r.n_tokens = 1;
    r.max_tokens = n;
    r.ignore_eos = true;
    if (!ingot_generate(engine, &r, NULL, NULL, NULL, &error))
        fail_msg("%s", error.message);
}

static inline void check_token_cost(const char *variant, const char *device)
{
    enum { N = 5 };
    struct ingot_engine_options o = ingot_engine_defaults();
    char path[512];

    snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s/model.gguf", variant);
    o.model = path;
    o.device = device;
    o.speculate = INGOT_SPECULATE_OFF; // steps are counted
    struct ingot_engine *engine = open_or_fail(&o);
    const struct device_counters *now = &engine->inner.loaded->devices.at[0]->counters;
    answer_tokens(engine, N); // what is made for the first step
    const struct device_counters before = *now;
    answer_tokens(engine, N);
    print_message("%s on %s, %d tokens: %llu plays, %llu submissions, %llu waits, %llu bytes\n", variant,
                  device, N, (unsigned long long)(now->plays - before.plays),
                  (unsigned long long)(now->submissions - before.submissions),
                  (unsigned long long)(now->waits - before.waits),
                  (unsigned long long)(now->read_bytes - before.read_bytes));
    assert_int_equal(now->plays - before.plays, N);
    assert_int_equal(now->submissions - before.submissions, N);
    assert_int_equal(now->waits - before.waits, N);
    assert_int_equal(now->read_bytes - before.read_bytes, 4 * N);
    assert_int_equal(now->buffers, before.buffers);
    ingot_engine_close(engine);
}

static inline void check_token_costs(const char *device)
{
    check_token_cost("llama3", device);
    for (size_t i = 0; i < N_GOLDEN_MIXTURES; i++)
        check_token_cost(golden_mixtures[i], device);
    for (size_t i = 0; i < N_GOLDEN_HYBRIDS; i++)
        check_token_cost(golden_hybrids[i], device);
}
