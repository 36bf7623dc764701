// test_flight_metal.c - stages on Metal and on CPUs that compute at the same time say what they say one after
// the other. On the emulator.
#include "engine/api.h"
#include "engine/flight/flight_run.h"
#include "metal_emu.h"
#include "open_engine.h"

enum { N_TOGETHER = 4, N_EACH = 8, N_TURNS = 3 };

struct told_together {
    uint32_t tokens[N_TOGETHER][N_EACH], n[N_TOGETHER], most_in_flight;
};

static struct ingot_request *begin_one(struct ingot_engine *engine, uint32_t i)
{
    static uint32_t tokens[64];
    struct ingot_request_options r = ingot_request_defaults();

    for (uint32_t k = 0; k < 64; k++)
        tokens[k] = 300 + (k * 7 + i * 13) % 200;
    r.tokens = tokens;
    r.n_tokens = 4 + i * 9;
    r.max_tokens = N_EACH;
    r.ignore_eos = true;
    r.sampling.temperature = 0.8f;
    r.sampling.seed = 5 + i;
    struct ingot_request *request = ingot_submit(engine, &r, NULL);
    assert_non_null(request);
    return request;
}

static void tell_together(struct ingot_engine *engine, struct told_together *told)
{
    struct ingot_request *requests[N_TOGETHER];
    struct ingot_event event;
    bool busy = true;

    *told = (struct told_together){ 0 };
    for (uint32_t i = 0; i < N_TOGETHER; i++)
        requests[i] = begin_one(engine, i);
    while (busy) {
        assert_true(ingot_step(engine, &busy, NULL));
        uint32_t n = engine->inner.flight.n;
        told->most_in_flight = n > told->most_in_flight ? n : told->most_in_flight;
    }
    for (uint32_t i = 0; i < N_TOGETHER; i++) {
        while (ingot_poll(requests[i], &event))
            if (event.token != UINT32_MAX)
                told->tokens[i][told->n[i]++] = event.token;
        ingot_request_free(requests[i]);
    }
}

static struct ingot_engine *open_together(const char *device, const char *stages, bool in_turn)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct err err = { 0 };

    o.device = device;
    o.stages = stages;
    o.n_threads = 1;
    o.n_context = 128;
    o.n_batch = 16;
    o.n_sequences = N_TOGETHER;
    o.step_stretch = 0; // steps do not depend on time
    o.speculate = INGOT_SPECULATE_OFF;
    o.no_prefix_cache = true;
    o.invariant = true; // steps are dealt otherwise
    struct ingot_engine *engine = open_or_fail(&o);
    assert_non_null(engine->inner.pipeline);
    if (in_turn) {
        flight_close(&engine->inner);
        assert_ok(flight_create(&engine->inner.flight, 1, engine->inner.batch, &err), &err);
    }
    return engine;
}

// The stage on the CPU has a thread of its own beside Metal's.
static void stages_with_threads_say_what_they_say_in_turn(void **state)
{
    static const struct {
        const char *device, *stages;
    } ways[] = { { "cpu,metal", "4" }, { "metal,cpu", "3" }, { "cpu,metal,cpu", "2,5" } };
    struct told_together want, got;
    (void)state;

    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        struct ingot_engine *engine = open_together(ways[w].device, ways[w].stages, true);
        tell_together(engine, &want);
        ingot_engine_close(engine);
        assert_true(want.most_in_flight <= 1);
        engine = open_together(ways[w].device, ways[w].stages, false);
        for (uint32_t i = 0; i < N_TURNS; i++) {
            tell_together(engine, &got);
            assert_true(got.most_in_flight > 1);
            for (uint32_t k = 0; k < N_TOGETHER; k++)
                assert_int_equal(got.n[k], N_EACH);
            assert_memory_equal(got.tokens, want.tokens, sizeof want.tokens);
        }
        ingot_engine_close(engine);
    }
}

static int keep_to_the_build_folder(void **state)
{
    (void)state;
    return setenv("XDG_STATE_HOME", BINARY_DIR "/metal", 1); // pipelines are archived there
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_with_threads_say_what_they_say_in_turn),
    };
    return cmocka_run_group_tests(tests, keep_to_the_build_folder, NULL);
}
