// told_in_flight.h - what several requests tell while steps of them are in flight: answers and prompts of
// many lengths, more of them than sequences, too few pages, one that is cancelled, one that wants logits. On
// any devices, for test_flight and test_flight_cuda.
#pragma once
#include "engine/api.h"
#include "engine/flight/flight_run.h"
#include "open_engine.h"

enum { N_REQUESTS = 7, MOST_TOKENS = 24, N_PROMPT = 90 };

struct told {
    uint32_t tokens[N_REQUESTS][MOST_TOKENS], n[N_REQUESTS];
    uint64_t n_pauses, n_steps, n_logits, logits; // rows; the sum of their bits
    uint32_t most_in_flight;
};

struct tried {
    const char *device, *stages;
    uint32_t most, n_kv_tokens, cancelled, with_logits; // the last two: which request; N_REQUESTS: none
    bool invariant; // where steps that are dealt otherwise have other bits
};
// most: as many as the stages' threads take; as the engine chooses.
enum { THREADS = 0, AS_OPENED = 1000 };

static const char *told_model; // NULL: the shipped one

static inline struct ingot_engine *told_open(const struct tried *w)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct ingot_error error;

    o.model = told_model ? told_model : SOURCE_DIR "/models/ingot-7m-q8_0.gguf";
    o.device = w->device;
    o.stages = w->stages;
    o.n_context = 128;
    o.step_stretch = 0; // steps do not depend on time
    o.n_batch = 16;
    o.n_sequences = 5; // others wait
    o.n_kv_tokens = w->n_kv_tokens;
    o.invariant = w->invariant;
    o.n_threads = w->invariant ? 1 : 0; // beside a GPU
    o.speculate = w->invariant ? INGOT_SPECULATE_OFF : o.speculate;
    struct ingot_engine *engine = open_or_fail(&o);
    struct engine *e = &engine->inner;
    if (w->most == AS_OPENED)
        return engine;
    flight_close(e);
    if (w->most == THREADS)
        assert_ok(flight_start(e, e->loaded->n_stages, (struct err *)&error), &error);
    else
        assert_ok(flight_create(&e->flight, w->most, e->batch, (struct err *)&error), &error);
    return engine;
}

static inline struct ingot_request *told_submit(struct ingot_engine *engine, uint32_t i, bool logits)
{
    static uint32_t tokens[N_PROMPT];
    struct ingot_request_options r = ingot_request_defaults();

    for (uint32_t k = 0; k < N_PROMPT; k++)
        tokens[k] = told_model ? 3 + (k * 7 + i * 13) % 90 : 300 + (k * 7 + i * 13) % 200;
    r.tokens = tokens;
    r.n_tokens = 3 + i * 12;
    r.max_tokens = MOST_TOKENS - i;
    r.ignore_eos = true;
    r.sampling.temperature = 0.9f;
    r.sampling.repeat_penalty = 1.1f;
    r.sampling.seed = 40 + i;
    r.n_logits = logits ? 5 : 0;
    struct ingot_request *request = ingot_submit(engine, &r, NULL);
    assert_non_null(request);
    return request;
}

static inline void told_take(struct ingot_request *request, uint32_t i, struct told *told)
{
    struct ingot_event event;

    while (ingot_poll(request, &event) && !event.done) {
        if (event.token != UINT32_MAX)
            told->tokens[i][told->n[i]++] = event.token;
        for (uint32_t k = 0; event.logits && k < 100; k++) {
            uint32_t bits;
            memcpy(&bits, &event.logits[k], sizeof bits);
            told->logits += bits;
        }
        told->n_logits += event.logits != NULL;
    }
}

static inline void told_run(const struct tried *w, struct told *told)
{
    struct ingot_engine *engine = told_open(w);
    struct ingot_request *requests[N_REQUESTS];
    struct ingot_engine_stats stats;
    bool busy = true;

    memset(told, 0, sizeof *told);
    for (uint32_t i = 0; i < N_REQUESTS; i++)
        requests[i] = told_submit(engine, i, i == w->with_logits);
    for (uint32_t n = 0; busy; n++) {
        assert_true(ingot_step(engine, &busy, NULL));
        uint32_t in_flight = engine->inner.flight.n;
        told->most_in_flight = in_flight > told->most_in_flight ? in_flight : told->most_in_flight;
        if (n == 9 && w->cancelled < N_REQUESTS) {
            ingot_request_free(requests[w->cancelled]);
            requests[w->cancelled] = NULL;
        }
        for (uint32_t i = 0; i < N_REQUESTS; i++)
            if (requests[i])
                told_take(requests[i], i, told);
        assert_true(n < 2000);
    }
    ingot_engine_stats(engine, &stats);
    told->n_pauses = stats.n_pauses;
    told->n_steps = stats.n_steps;
    for (uint32_t i = 0; i < N_REQUESTS; i++)
        if (requests[i])
            ingot_request_free(requests[i]);
    ingot_engine_close(engine);
}

static inline void told_check_same(const struct told *a, const struct told *b, uint32_t but)
{
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        if (i == but)
            continue;
        assert_int_equal(a->n[i], MOST_TOKENS - i);
        assert_int_equal(b->n[i], MOST_TOKENS - i);
        assert_memory_equal(a->tokens[i], b->tokens[i], a->n[i] * sizeof(uint32_t));
    }
}
