// test_flight.c - steps in flight over two stages and three give what one step at a time gives: with answers
// and prompts of many lengths, too few pages, requests that end early, and logits. CPUs compute at the same
// time, each in a thread (`threads`). Without, they stand for GPUs that send to each other: the stages do not
// run at once, but steps are dealt, delivered and taken back alike.
#include "engine/api.h"
#include "engine/flight/flight_run.h"
#include "engine/flight/pipeline.h"
#include "engine/schedule.h"
#include "engine/stage/batch.h"
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
};
enum { THREADS = 0 }; // most: as many as the stages' threads take

static struct ingot_engine *open_way(const struct tried *w)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct ingot_error error;

    o.model = SOURCE_DIR "/models/ingot-7m-q8_0.gguf";
    o.device = w->device;
    o.stages = w->stages;
    o.n_context = 128;
    o.step_stretch = 0; // steps do not depend on time
    o.n_batch = 16;
    o.n_sequences = 5; // others wait
    o.n_kv_tokens = w->n_kv_tokens;
    struct ingot_engine *engine = open_or_fail(&o);
    struct engine *e = &engine->inner;
    flight_close(e);
    if (w->most == THREADS)
        assert_ok(flight_start(e, e->loaded->n_stages, (struct err *)&error), &error);
    else
        assert_ok(flight_create(&e->flight, w->most, e->batch, (struct err *)&error), &error);
    return engine;
}

static struct ingot_request *submit(struct ingot_engine *engine, uint32_t i, bool logits)
{
    static uint32_t tokens[N_PROMPT];
    struct ingot_request_options r = ingot_request_defaults();

    for (uint32_t k = 0; k < N_PROMPT; k++)
        tokens[k] = 300 + (k * 7 + i * 13) % 200;
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

static void take(struct ingot_request *request, uint32_t i, struct told *told)
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

static void run(const struct tried *w, struct told *told)
{
    struct ingot_engine *engine = open_way(w);
    struct ingot_request *requests[N_REQUESTS];
    struct ingot_engine_stats stats;
    bool busy = true;

    memset(told, 0, sizeof *told);
    for (uint32_t i = 0; i < N_REQUESTS; i++)
        requests[i] = submit(engine, i, i == w->with_logits);
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
                take(requests[i], i, told);
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

static void check_same(const struct told *a, const struct told *b, uint32_t but)
{
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        if (i == but)
            continue;
        assert_int_equal(a->n[i], MOST_TOKENS - i);
        assert_int_equal(b->n[i], MOST_TOKENS - i);
        assert_memory_equal(a->tokens[i], b->tokens[i], a->n[i] * sizeof(uint32_t));
    }
}

static void answers_are_those_of_one_step_at_a_time(void **state)
{
    static struct told one, more;
    (void)state;

    run(&(struct tried){ "cpu", NULL, 1, 0, N_REQUESTS, N_REQUESTS }, &one);
    assert_int_equal(one.most_in_flight, 0);
    for (uint32_t most = 2; most <= 4; most++) {
        run(&(struct tried){ "cpu,cpu", "4", most, 0, N_REQUESTS, N_REQUESTS }, &more);
        check_same(&one, &more, N_REQUESTS);
        assert_int_equal(more.most_in_flight, most - 1); // the last is waited for in the same step
        assert_true(more.n_steps > one.n_steps);         // answers are shared out
    }
}

static void threads_of_stages_give_the_same(void **state)
{
    static const char *const borders[] = { "1", "2", "3", "4", "5", "6", "7" };
    static struct told one, more;
    (void)state;

    run(&(struct tried){ "cpu", NULL, 1, 0, N_REQUESTS, N_REQUESTS }, &one);
    for (size_t i = 0; i < sizeof borders / sizeof *borders; i++) {
        run(&(struct tried){ "cpu,cpu", borders[i], THREADS, 0, N_REQUESTS, N_REQUESTS }, &more);
        check_same(&one, &more, N_REQUESTS);
        assert_int_equal(more.most_in_flight, 2); // of three: the oldest is waited for in the same step
    }
    run(&(struct tried){ "cpu,cpu,cpu", "2,5", THREADS, 0, N_REQUESTS, N_REQUESTS }, &more);
    check_same(&one, &more, N_REQUESTS);
    assert_int_equal(more.most_in_flight, 3);
}

static void too_few_pages_pause_and_go_on(void **state)
{
    static struct told one, more;
    (void)state;

    run(&(struct tried){ "cpu", NULL, 1, 0, N_REQUESTS, N_REQUESTS }, &one);
    for (uint32_t n_tokens = 128; n_tokens <= 224; n_tokens += 16)
        for (uint32_t most = 2; most <= 4; most++) {
            run(&(struct tried){ "cpu,cpu", "3", most, n_tokens, N_REQUESTS, N_REQUESTS }, &more);
            assert_true(more.n_pauses > 0 || n_tokens > 128);
            check_same(&one, &more, N_REQUESTS);
        }
    for (uint32_t n_tokens = 128; n_tokens <= 224; n_tokens += 32) {
        run(&(struct tried){ "cpu,cpu", "3", THREADS, n_tokens, N_REQUESTS, N_REQUESTS }, &more);
        assert_true(more.n_pauses > 0 || n_tokens > 128);
        check_same(&one, &more, N_REQUESTS);
    }
}

// Its row is in flight; its slot and pages go to the next in the queue.
static void a_request_that_ends_in_flight_disturbs_none(void **state)
{
    static struct told one, more;
    (void)state;

    run(&(struct tried){ "cpu", NULL, 1, 0, N_REQUESTS, N_REQUESTS }, &one);
    for (uint32_t i = 0; i < 3; i++) {
        run(&(struct tried){ "cpu,cpu", "4", 3, 0, i, N_REQUESTS }, &more);
        check_same(&one, &more, i);
        run(&(struct tried){ "cpu,cpu,cpu", "3,4", THREADS, 0, i, N_REQUESTS }, &more);
        check_same(&one, &more, i);
    }
}

// Logits are read from the device after the step: no other may have been played since.
static void logits_wait_for_their_step(void **state)
{
    static struct told one, more;
    (void)state;

    run(&(struct tried){ "cpu", NULL, 1, 0, N_REQUESTS, 2 }, &one);
    for (uint32_t i = 0; i < 2; i++) {
        run(&(struct tried){ "cpu,cpu", "4", i ? THREADS : 2, 0, N_REQUESTS, 2 }, &more);
        check_same(&one, &more, N_REQUESTS);
        assert_true(one.n_logits >= 5);
        assert_int_equal(one.n_logits, more.n_logits);
        assert_int_equal(one.logits, more.logits);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_those_of_one_step_at_a_time),
        cmocka_unit_test(threads_of_stages_give_the_same),
        cmocka_unit_test(too_few_pages_pause_and_go_on),
        cmocka_unit_test(a_request_that_ends_in_flight_disturbs_none),
        cmocka_unit_test(logits_wait_for_their_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
