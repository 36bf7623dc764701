// test_wait.c - ingot_wait: waiting alone moves requests on, ends in time, and wakes for what other threads
// do.
#include <pthread.h>
#include <unistd.h>
#include "base/clock.h"
#include "open_engine.h"

enum { N_PROMPT = 24, N_NEW = 12 };
#define FOREVER UINT32_MAX

static struct ingot_engine *open_tiny(void)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    o.model = SOURCE_DIR "/tests/golden/llama2/model.gguf";
    o.n_threads = 1;
    o.n_sequences = 3;
    o.n_batch = 16;
    return open_or_fail(&o);
}

static struct ingot_request *ask(struct ingot_engine *engine, uint32_t number)
{
    struct ingot_request_options r = ingot_request_defaults();
    uint32_t tokens[N_PROMPT];
    for (uint32_t i = 0; i < N_PROMPT; i++)
        tokens[i] = (number * 31 + i * 7) % 97;
    r.tokens = tokens;
    r.n_tokens = N_PROMPT;
    r.max_tokens = N_NEW;
    r.sampling.temperature = 0;
    struct ingot_request *q = ingot_submit(engine, &r, NULL);
    assert_non_null(q);
    return q;
}

struct wait_answer {
    uint32_t tokens[N_NEW], n;
    bool done;
};

static void take(struct ingot_request *q, struct wait_answer *a)
{
    for (struct ingot_event e; ingot_poll(q, &e);) {
        if (e.token != UINT32_MAX)
            a->tokens[a->n++] = e.token;
        a->done = e.done;
    }
}

static struct wait_answer answer_alone(struct ingot_engine *engine, uint32_t number)
{
    struct ingot_request *q = ask(engine, number);
    struct wait_answer a = { 0 };
    while (ingot_wait(engine, q, FOREVER))
        take(q, &a);
    assert_true(a.done);
    assert_int_equal(a.n, N_NEW);
    ingot_request_free(q);
    return a;
}

static void waiting_alone_is_enough(void **state)
{
    (void)state;
    struct ingot_engine *engine = open_tiny();
    struct wait_answer alone[2] = { answer_alone(engine, 0), answer_alone(engine, 1) }, both[2] = { 0 };
    struct ingot_request *q[2] = { ask(engine, 0), ask(engine, 1) };
    while (!both[0].done || !both[1].done) {
        assert_true(ingot_wait(engine, NULL, FOREVER));
        take(q[0], &both[0]);
        take(q[1], &both[1]);
    }
    assert_memory_equal(alone, both, sizeof both);
    assert_false(ingot_wait(engine, q[0], FOREVER)); // nothing can come any more
    ingot_request_free(q[0]);
    ingot_request_free(q[1]);
    ingot_engine_close(engine);
}

static void a_wait_ends_in_time(void **state)
{
    (void)state;
    struct ingot_engine *engine = open_tiny();
    uint64_t from = clock_ns();
    assert_false(ingot_wait(engine, NULL, 30));
    assert_true(clock_ns() - from >= 30000000u);
    struct ingot_request *q = ask(engine, 0);
    assert_false(ingot_wait(engine, q, 0)); // no time for a step
    assert_true(ingot_wait(engine, q, FOREVER));
    assert_true(ingot_wait(engine, q, 0)); // it has not been taken
    ingot_request_free(q);
    assert_false(ingot_wait(engine, NULL, 0)); // what a freed request had is nobody's
    ingot_engine_close(engine);
}

static void a_request_that_cannot_run_meets_its_deadline(void **state)
{
    (void)state;
    struct ingot_engine *engine = open_tiny();
    struct ingot_request_options r = ingot_request_defaults();
    struct ingot_session *held[3];
    struct ingot_event e;
    for (int i = 0; i < 3; i++)
        assert_non_null(held[i] = ingot_session_create(engine, NULL));
    r.tokens = (const uint32_t[]){ 1, 2, 3 };
    r.n_tokens = 3;
    r.deadline_ms = 50;
    struct ingot_request *q = ingot_submit(engine, &r, NULL);
    uint64_t n_processor = clock_thread_ns();
    assert_true(ingot_wait(engine, q, FOREVER));
    assert_true(clock_thread_ns() - n_processor < 25000000u); // it slept
    assert_true(ingot_poll(q, &e) && e.done);
    assert_int_equal(e.result->error.code, INGOT_TIMEOUT);
    ingot_request_free(q);
    for (int i = 0; i < 3; i++)
        ingot_session_free(held[i]);
    ingot_engine_close(engine);
}

struct waiter {
    struct ingot_engine *engine;
    struct ingot_request *request; // NULL: one of its own
    uint32_t number;
    struct wait_answer answer;
    bool any;
};

static void *wait_for_own(void *arg)
{
    struct waiter *w = arg;
    w->answer = answer_alone(w->engine, w->number);
    return NULL;
}

static void many_threads_may_wait(void **state)
{
    (void)state;
    enum { N = 5 };
    struct ingot_engine *engine = open_tiny();
    struct waiter waiters[N];
    pthread_t threads[N];
    for (uint32_t i = 0; i < N; i++) {
        waiters[i] = (struct waiter){ .engine = engine, .number = i };
        pthread_create(&threads[i], NULL, wait_for_own, &waiters[i]);
    }
    for (uint32_t i = 0; i < N; i++)
        pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < N; i++) {
        struct wait_answer alone = answer_alone(engine, i);
        assert_memory_equal(&alone, &waiters[i].answer, sizeof alone);
    }
    ingot_engine_close(engine);
}

static void *wait_once(void *arg)
{
    struct waiter *w = arg;
    w->any = ingot_wait(w->engine, w->request, FOREVER);
    return NULL;
}

// The thread sleeps, or is about to: either way it must return.
static void a_sleeper_wakes_for_a_new_request_and_for_the_end(void **state)
{
    (void)state;
    struct waiter w = { .engine = open_tiny() };
    pthread_t thread;
    pthread_create(&thread, NULL, wait_once, &w);
    usleep(20000);
    struct ingot_request *q = ask(w.engine, 3);
    pthread_join(thread, NULL);
    assert_true(w.any);
    struct ingot_session *s = ingot_session_create(w.engine, NULL);
    struct wait_answer a = { 0 };
    while (ingot_wait(w.engine, q, FOREVER))
        take(q, &a);
    w.request = ask(w.engine, 4);
    ingot_cancel(w.request);
    pthread_create(&thread, NULL, wait_once, &w);
    pthread_join(thread, NULL);
    assert_true(w.any);
    ingot_engine_close(w.engine);
    // the engine is there until the last of them is freed
    assert_true(ingot_wait(w.engine, w.request, FOREVER));
    ingot_request_free(q);
    ingot_request_free(w.request);
    ingot_session_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waiting_alone_is_enough),
        cmocka_unit_test(a_wait_ends_in_time),
        cmocka_unit_test(a_request_that_cannot_run_meets_its_deadline),
        cmocka_unit_test(many_threads_may_wait),
        cmocka_unit_test(a_sleeper_wakes_for_a_new_request_and_for_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
