// test_engine_thread.c - the engine's thread of the server, driven without HTTP.
#include "server/generation/engine_thread.h"
#include "server/generation/generation.h"
#include "server/generation/metrics.h"
#include "testing.h"

struct event_reader { // waits for a generation's end
    pthread_mutex_t lock;
    pthread_cond_t woken;
    bool ended;
};

static void wake(void *arg)
{
    struct event_reader *reader = arg;

    pthread_mutex_lock(&reader->lock);
    reader->ended = true;
    pthread_cond_signal(&reader->woken);
    pthread_mutex_unlock(&reader->lock);
}

static void *run(void *arg)
{
    engine_thread_run(arg);
    return NULL;
}

static enum ingot_finish finish_of(struct engine_thread *t, uint32_t max_tokens)
{
    struct event_reader reader = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false };
    struct ingot_request_options request = ingot_request_defaults();
    struct generation_options o = {
        .requests = &request, .n = 1, .at_end_only = true, .wake = wake, .arg = &reader
    };
    static const uint32_t prompt[] = { 40, 41, 42, 43 };
    struct ingot_event event;
    struct err err = { 0 };
    uint32_t choice;

    request.tokens = prompt;
    request.n_tokens = 4;
    request.max_tokens = max_tokens;
    request.ignore_eos = true;
    struct generation *g = generation_submit(t, &o, &err);
    if (!g)
        fail_msg("%s", err.message);
    pthread_mutex_lock(&reader.lock);
    while (!reader.ended)
        pthread_cond_wait(&reader.woken, &reader.lock);
    pthread_mutex_unlock(&reader.lock);
    while (generation_take(g, &choice, &event))
        ;
    assert_true(generation_is_done(g));
    enum ingot_finish finish = g->choices[0].result.finish;
    generation_release(g);
    return finish;
}

// A request may be with the engine, and not yet in the list, when all are cancelled.
static void what_comes_after_cancelling_all_is_cancelled_too(void **state)
{
    struct ingot_engine_options options = ingot_engine_defaults();
    struct ingot_error error;
    struct metrics metrics;
    struct engine_thread t = { .metrics = &metrics, .most_active = 4 };
    pthread_t thread;

    (void)state;
    options.model = SOURCE_DIR "/models/ingot-7m-q8_0.gguf";
    options.n_context = 512;
    t.engine = ingot_engine_open(&options, &error);
    if (!t.engine)
        fail_msg("%s", error.message);
    engine_thread_create(&t);
    metrics_create(&metrics);
    assert_int_equal(pthread_create(&thread, NULL, run, &t), 0);
    assert_int_equal(finish_of(&t, 3), INGOT_FINISH_LENGTH);
    engine_thread_cancel_all(&t);
    assert_int_equal(finish_of(&t, 400), INGOT_FINISH_CANCELLED);
    engine_thread_stop(&t);
    pthread_join(thread, NULL);
    metrics_destroy(&metrics);
    engine_thread_destroy(&t);
    ingot_engine_close(t.engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(what_comes_after_cancelling_all_is_cancelled_too) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
