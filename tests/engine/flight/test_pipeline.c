// test_pipeline.c - stages that compute at the same time, each in a thread, beside all that also reads or
// writes their devices: pages kept on disk and found again, sessions saved and loaded while others answer,
// grammars, adapters; a device that fails at any of the steps in flight; a prompt that is given up between
// them. The texts are one CPU's.
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>
#include "engine/api.h"
#include "engine/flight/flight_run.h"
#include "open_engine.h"

#define GOLDEN(path) SOURCE_DIR "/tests/golden/" path
enum { N_REQUESTS = 6, N_NEW = 20, N_PROMPT = 70 };

struct staged_answer {
    uint32_t tokens[N_NEW], n, n_reused;
    struct ingot_error error;
};

static const char *model; // NULL: the shipped one

static struct ingot_engine_options options_of(const char *stages)
{
    struct ingot_engine_options o = ingot_engine_defaults();

    o.model = model;
    o.device = stages ? "cpu,cpu" : "cpu";
    o.stages = stages;
    o.n_threads = 1;
    o.n_context = 128;
    o.n_batch = 16;
    o.n_sequences = 4;
    o.step_stretch = 0; // steps do not depend on time
    return o;
}

static struct ingot_engine *open_stages(const struct ingot_engine_options *o)
{
    struct ingot_engine *engine = open_or_fail(o);
    struct engine *e = &engine->inner;
    struct err err = { 0 };

    if (e->loaded->n_stages > 1) { // on one processor, too
        flight_close(e);
        assert_ok(flight_start(e, e->loaded->n_stages, &err), &err);
    }
    return engine;
}

static struct ingot_request *submit(struct ingot_engine *engine, uint32_t i, struct ingot_session *session,
                                    const struct ingot_adapter_use *use)
{
    static uint32_t tokens[N_PROMPT];
    struct ingot_request_options r = ingot_request_defaults();
    struct ingot_error error = { 0 };

    for (uint32_t k = 0; k < N_PROMPT; k++)
        tokens[k] = 20 + (k * 7 + i * 13) % (model ? 100 : 200);
    r.tokens = tokens;
    r.n_tokens = N_PROMPT - i * 9;
    r.max_tokens = N_NEW - i;
    r.ignore_eos = i != 3 || use || model;
    r.sampling.temperature = i % 2 ? 0.8f : 0;
    r.sampling.seed = 7 + i;
    r.grammar =
        i == 3 && !use && !model ? "root ::= (\"the \" | \"a \") (\"red\" | \"brown\") \" fox\" [.!]" : NULL;
    r.session = session;
    r.adapters = use;
    r.n_adapters = use != NULL;
    struct ingot_request *request = ingot_submit(engine, &r, &error);
    if (!request)
        fail_msg("%s", error.message);
    return request;
}

static bool take(struct ingot_request *request, struct staged_answer *a)
{
    struct ingot_event event;

    while (ingot_poll(request, &event)) {
        if (event.token != UINT32_MAX)
            a->tokens[a->n++] = event.token;
        if (!event.done)
            continue;
        a->error = event.result->error;
        a->n_reused = event.result->n_reused;
        return true;
    }
    return false;
}

static void finish_all(struct ingot_engine *engine, struct ingot_request *requests[],
                       struct staged_answer answers[])
{
    bool busy = true;

    for (uint32_t n = 0; busy; n++) {
        ingot_step(engine, &busy, NULL);
        assert_true(n < 1000);
    }
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        assert_true(take(requests[i], &answers[i]));
        ingot_request_free(requests[i]);
    }
}

static void answer_all(struct ingot_engine *engine, const struct ingot_adapter_use *uses,
                       struct staged_answer answers[])
{
    struct ingot_request *requests[N_REQUESTS];

    memset(answers, 0, N_REQUESTS * sizeof *answers);
    for (uint32_t i = 0; i < N_REQUESTS; i++)
        requests[i] = submit(engine, i, NULL, uses ? &uses[i % 2] : NULL);
    finish_all(engine, requests, answers);
}

static void check_same(const struct staged_answer *a, const struct staged_answer *b)
{
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        assert_string_equal(b[i].error.message, "");
        assert_true(a[i].n > 0);
        assert_int_equal(a[i].n, b[i].n);
        assert_memory_equal(a[i].tokens, b[i].tokens, a[i].n * sizeof(uint32_t));
    }
}

static void check_pages_on_disk(const char *stages)
{
    char folder[] = "/tmp/ingot-pipeline-XXXXXX", command[64];
    struct staged_answer one[N_REQUESTS], kept[N_REQUESTS];
    struct ingot_engine_options o = options_of(NULL);
    uint32_t n_reused = 0;

    assert_non_null(mkdtemp(folder));
    struct ingot_engine *engine = open_stages(&o);
    answer_all(engine, NULL, one);
    ingot_engine_close(engine);
    o = options_of(stages);
    o.cache_dir = folder;
    o.n_kv_tokens = 160; // pages are given up while steps are in flight, and saved before
    for (uint32_t turn = 0; turn < 3; turn++) {
        engine = open_stages(&o);
        answer_all(engine, NULL, kept);
        check_same(one, kept);
        for (uint32_t i = 0; i < N_REQUESTS; i++)
            n_reused += kept[i].n_reused;
        ingot_engine_close(engine);
    }
    assert_true(n_reused > 0);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

static void pages_are_kept_and_found_between_steps(void **state)
{
    (void)state;
    check_pages_on_disk("3");
    model = GOLDEN("gemma3/model.gguf"); // window pages, too
    check_pages_on_disk("2");
    model = GOLDEN("lfm2/model.gguf"); // states
    check_pages_on_disk("1");
    model = NULL;
}

// Saves one while the others are in the middle of their answers, and loads it again.
static void a_session_is_saved_while_others_answer(void **state)
{
    static const char path[] = BINARY_DIR "/pipeline.session";
    struct staged_answer one[N_REQUESTS], more[N_REQUESTS] = { 0 }, first = { 0 }, again = { 0 };
    struct ingot_engine_options o = options_of(NULL);
    struct ingot_request *requests[N_REQUESTS], *last;
    struct ingot_error error = { 0 };
    bool busy = true;
    (void)state;

    struct ingot_engine *engine = open_stages(&o);
    answer_all(engine, NULL, one);
    ingot_engine_close(engine);
    o = options_of("5");
    o.no_prefix_cache = true;
    engine = open_stages(&o);
    struct ingot_session *session = ingot_session_create(engine, &error);
    assert_non_null(session);
    last = submit(engine, 0, session, NULL);
    while (!take(last, &first))
        assert_true(ingot_step(engine, &busy, NULL));
    ingot_request_free(last);
    for (uint32_t i = 0; i < N_REQUESTS; i++)
        requests[i] = submit(engine, i, NULL, NULL);
    for (uint32_t i = 0; i < 7; i++)
        assert_true(ingot_step(engine, &busy, NULL));
    assert_true(engine->inner.flight.n > 1);
    if (!ingot_session_save(session, path, &error))
        fail_msg("%s", error.message);
    ingot_session_free(session);
    session = ingot_session_load(engine, path, &error);
    if (!session)
        fail_msg("%s", error.message);
    finish_all(engine, requests, more);
    check_same(one, more);
    last = submit(engine, 0, session, NULL);
    while (!take(last, &again))
        assert_true(ingot_step(engine, &busy, NULL));
    assert_true(again.n_reused >= 48);
    assert_int_equal(first.n, again.n);
    assert_memory_equal(first.tokens, again.tokens, first.n * sizeof(uint32_t));
    ingot_request_free(last);
    ingot_session_free(session);
    ingot_engine_close(engine);
    remove(path);
}

static void adapters_go_with_their_steps(void **state)
{
    static const struct ingot_adapter both[] = {
        { GOLDEN("lora/tinyllama-all/adapter.gguf"), "all", 1 },
        { GOLDEN("lora/tinyllama-root"), NULL, 0.75f },
    };
    static const struct ingot_adapter_use uses[] = { { "all", 1 }, { "tinyllama-root", 1 } };
    struct staged_answer one[N_REQUESTS], more[N_REQUESTS];
    struct ingot_engine_options o;
    (void)state;

    for (int i = 0; i < 2; i++) {
        o = options_of(i ? "1" : NULL);
        o.model = GOLDEN("tinyllama/model.gguf");
        o.adapters = both;
        o.n_adapters = 2;
        struct ingot_engine *engine = open_stages(&o);
        answer_all(engine, uses, i ? more : one);
        ingot_engine_close(engine);
    }
    check_same(one, more);
}

// Answers of two whole buckets are on both stages at once; fewer stay together.
static void answers_are_divided_by_whole_buckets(void **state)
{
    (void)state;

    for (uint32_t n = 15; n <= 17; n++) {
        struct ingot_engine_options o = options_of("4");
        o.n_sequences = n;
        o.n_batch = 32;
        struct ingot_engine *engine = open_stages(&o);
        struct ingot_request *requests[17];
        uint32_t most = 0;
        bool busy = true;
        for (uint32_t i = 0; i < n; i++)
            requests[i] = submit(engine, i % 3, NULL, NULL);
        while (busy) {
            assert_true(ingot_step(engine, &busy, NULL));
            uint32_t n_with = flight_n_with_answers(&engine->inner.flight);
            most = n_with > most ? n_with : most;
        }
        assert_int_equal(most, n < 16 ? 1 : 2);
        for (uint32_t i = 0; i < n; i++)
            ingot_request_free(requests[i]);
        ingot_engine_close(engine);
    }
}

// ---- stages that take long

static struct device_ops slowed[2];
static const struct device_ops *at_full_speed;
static struct {
    uint32_t step_us, row_us; // what a play takes longer
} slow[2];

static bool play_slowly(struct device *d, struct tape *t, const struct buffer *step, uint32_t first,
                        uint32_t last, struct err *err)
{
    const struct step *rows = step->host;
    uint32_t which = d->ops == &slowed[1];

    usleep(slow[which].step_us + rows->n_rows * slow[which].row_us);
    return at_full_speed->play(d, t, step, first, last, err);
}

// How many steps share 16 answers in the end.
static uint32_t n_shares_at_last(void)
{
    static const uint32_t tokens[] = { 20, 21, 22 };
    struct ingot_engine_options o = options_of("4");
    struct ingot_request_options r = ingot_request_defaults();
    struct ingot_request *requests[16];
    uint32_t most = 0;
    bool busy = true;

    o.n_sequences = 16;
    o.n_batch = 64;
    r.tokens = tokens;
    r.n_tokens = 3;
    r.max_tokens = 30;
    r.ignore_eos = true;
    struct ingot_engine *engine = open_stages(&o);
    for (uint32_t i = 0; i < 2; i++) {
        struct device *d = engine->inner.loaded->devices.at[i];
        at_full_speed = d->ops;
        slowed[i] = *d->ops;
        slowed[i].play = play_slowly;
        d->ops = &slowed[i];
    }
    for (uint32_t i = 0; i < 16; i++)
        assert_non_null(requests[i] = ingot_submit(engine, &r, NULL));
    for (uint32_t n = 0; busy; n++) {
        assert_true(ingot_step(engine, &busy, NULL));
        uint32_t n_with = flight_n_with_answers(&engine->inner.flight);
        most = n > 30 && n_with > most ? n_with : most;
    }
    for (uint32_t i = 0; i < 16; i++)
        ingot_request_free(requests[i]);
    ingot_engine_close(engine);
    return most;
}

// Two steps read the slow stage's weights twice; what the other stage could do meanwhile is less.
static void answers_stay_together_where_one_stage_takes_all_the_time(void **state)
{
    (void)state;

    slow[0].step_us = 0;
    slow[1].step_us = 40000;
    assert_int_equal(n_shares_at_last(), 1);
    slow[0].step_us = slow[1].step_us = 0;
    slow[0].row_us = slow[1].row_us = 2000;
    assert_int_equal(n_shares_at_last(), 2);
}

// ---- a device fails

static atomic_int plays_left;
static struct device_ops failing;
static const struct device_ops *as_before;

static bool play_for_a_while(struct device *d, struct tape *t, const struct buffer *step, uint32_t first,
                             uint32_t last, struct err *err)
{
    if (atomic_fetch_sub(&plays_left, 1) <= 0)
        return err_set(err, ERR_MEMORY, "%s: a step failed: it is worn out", d->name);
    return as_before->play(d, t, step, first, last, err);
}

// At each of the first steps, in the first stage and in the last.
static void a_failure_ends_all_steps_in_flight(void **state)
{
    struct staged_answer answers[N_REQUESTS];
    (void)state;

    for (uint32_t device = 0; device < 2; device++)
        for (int n = 0; n < 6; n++) {
            struct ingot_engine_options o = options_of("4");
            struct ingot_engine *engine = open_stages(&o);
            struct device *d = engine->inner.loaded->devices.at[device];
            as_before = d->ops;
            failing = *d->ops;
            failing.play = play_for_a_while;
            d->ops = &failing;
            atomic_store(&plays_left, n);
            answer_all(engine, NULL, answers);
            for (uint32_t i = 0; i < N_REQUESTS; i++) {
                assert_int_equal(answers[i].error.code, INGOT_MEMORY);
                assert_string_equal(answers[i].error.message, "cpu: a step failed: it is worn out");
            }
            ingot_engine_close(engine);
        }
}

// With steps in flight: their threads end first.
static void an_engine_is_closed_in_the_middle(void **state)
{
    (void)state;

    for (uint32_t n = 0; n < 6; n++) {
        struct ingot_engine_options o = options_of("2");
        struct ingot_engine *engine = open_stages(&o);
        struct ingot_request *requests[N_REQUESTS];
        bool busy;
        for (uint32_t i = 0; i < N_REQUESTS; i++)
            requests[i] = submit(engine, i, NULL, NULL);
        for (uint32_t i = 0; i < n; i++)
            assert_true(ingot_step(engine, &busy, NULL));
        assert_int_equal(engine->inner.flight.n, n < 2 ? n : 2);
        for (uint32_t i = 0; i < N_REQUESTS; i++)
            ingot_request_free(requests[i]);
        ingot_engine_close(engine);
    }
}

// What is alone is one step at a time, played by the engine's thread, and has drafts.
static void one_answer_alone_has_drafts(void **state)
{
    struct ingot_engine_options o;
    uint32_t tokens[60];
    struct ingot_request_options r = greedy_request(tokens, 60, 40);
    struct ingot_result result[3];
    struct err err = { 0 };
    (void)state;

    for (uint32_t i = 0; i < 60; i++)
        tokens[i] = 300 + i % 6;
    for (int i = 0; i < 3; i++) { // with threads, as devices that send to each other, as one
        o = options_of(i < 2 ? "4" : NULL);
        o.speculate = INGOT_SPECULATE_ALWAYS;
        struct ingot_engine *engine = open_stages(&o);
        struct engine *e = &engine->inner;
        if (i == 1) {
            flight_close(e);
            assert_ok(flight_create(&e->flight, 2, e->batch, &err), &err);
        }
        assert_true(ingot_generate(engine, &r, NULL, NULL, &result[i], NULL));
        assert_int_equal(result[i].n_generated, 40);
        ingot_engine_close(engine);
    }
    assert_true(result[0].n_drafted > 0);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(result[0].n_drafted, result[i].n_drafted);
        assert_int_equal(result[0].n_accepted, result[i].n_accepted);
    }
}

struct step_question {
    uint32_t n_left, n_events;
};

static bool ask_once_less(void *arg)
{
    return ((struct step_question *)arg)->n_left-- > 1;
}

static bool count_event(void *arg, const struct ingot_event *event)
{
    (void)event;
    ((struct step_question *)arg)->n_events++;
    return true;
}

// Where no event comes: a prompt of five steps on one CPU, on stages that compute at the same time, and on
// ranks of a layer. What is asked then is answered as ever.
static void on_step_ends_a_prompt(void **state)
{
    struct staged_answer one[N_REQUESTS], after[N_REQUESTS];
    struct ingot_request_options r = ingot_request_defaults();
    uint32_t tokens[N_PROMPT];
    (void)state;

    for (uint32_t i = 0; i < N_PROMPT; i++)
        tokens[i] = 20 + i;
    r.tokens = tokens;
    r.n_tokens = N_PROMPT;
    r.on_step = ask_once_less;
    for (int way = 0; way < 3; way++) {
        struct ingot_engine_options o = options_of(way == 1 ? "4" : NULL);
        struct step_question asked = { .n_left = 2 };
        struct ingot_engine_stats stats;
        struct ingot_result result;
        o.exact = true;
        o.n_tensor_parallel = way == 2 ? 2 : 0;
        struct ingot_engine *engine = open_stages(&o);
        assert_true(ingot_generate(engine, &r, count_event, &asked, &result, NULL));
        ingot_engine_stats(engine, &stats);
        assert_true(result.finish == INGOT_FINISH_CANCELLED && result.n_generated == 0);
        assert_true(stats.n_steps <= 2 && asked.n_events == 1); // the last one
        assert_int_equal(asked.n_left, 0);
        answer_all(engine, NULL, after);
        ingot_engine_close(engine);
        if (way == 0)
            memcpy(one, after, sizeof one);
        check_same(one, after);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_kept_and_found_between_steps),
        cmocka_unit_test(a_session_is_saved_while_others_answer),
        cmocka_unit_test(adapters_go_with_their_steps),
        cmocka_unit_test(answers_are_divided_by_whole_buckets),
        cmocka_unit_test(answers_stay_together_where_one_stage_takes_all_the_time),
        cmocka_unit_test(a_failure_ends_all_steps_in_flight),
        cmocka_unit_test(an_engine_is_closed_in_the_middle),
        cmocka_unit_test(one_answer_alone_has_drafts),
        cmocka_unit_test(on_step_ends_a_prompt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
