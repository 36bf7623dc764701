// test_schedule.c - who is read first: prompts of unlike lengths at once, counted in steps, and answered with
// the bits they have alone.
#include "open_engine.h"

#define MODEL SOURCE_DIR "/tests/golden/llama3/model.gguf"
enum { N_BATCH = 16, LONG = 208, SHORT = 24, N_NEW = 4, N_COMPARED = 64, N_AT_ONCE = 4, MOST_STEPS = 1000 };

struct asked {
    uint32_t tokens[LONG], n;
    int32_t priority;
    struct ingot_request *request;
    uint32_t first_step, last_step; // when the first token came, and the last
    uint32_t answer[N_NEW], n_answered;
    float logits[N_NEW][N_COMPARED];
};

static struct ingot_engine *open_engine(uint32_t n_batch)
{
    struct ingot_engine_options o = ingot_engine_defaults();

    o.model = MODEL;
    o.device = "cpu";
    o.n_threads = 1;
    o.n_context = 256;
    o.n_sequences = N_AT_ONCE;
    o.n_batch = n_batch;
    o.step_stretch = 0; // every step is filled: what happens does not hang on the clock
    return open_or_fail(&o);
}

// A prompt of n tokens; the first `shared` are those of every other one.
static void submit(struct ingot_engine *engine, struct asked *a, uint32_t n, uint32_t shared)
{
    static uint32_t n_asked;
    struct ingot_request_options o = ingot_request_defaults();
    struct ingot_error error;
    int32_t priority = a->priority;

    *a = (struct asked){ .n = n, .priority = priority };
    n_asked++;
    for (uint32_t i = 0; i < n; i++)
        a->tokens[i] = ((i < shared ? 0 : n_asked * 7919) + i * 104729 + 11) % 250;
    o.tokens = a->tokens;
    o.n_tokens = n;
    o.n_logits = 1;
    o.max_tokens = N_NEW;
    o.ignore_eos = true;
    o.priority = priority;
    a->request = ingot_submit(engine, &o, &error);
    if (!a->request)
        fail_msg("%s", error.message);
}

static void take(struct asked *a, uint32_t step)
{
    struct ingot_event e;

    while (!a->last_step && ingot_poll(a->request, &e)) {
        a->first_step = a->first_step ? a->first_step : step;
        if (e.token != UINT32_MAX)
            a->answer[a->n_answered] = e.token;
        if (e.logits)
            memcpy(a->logits[a->n_answered], e.logits, sizeof a->logits[0]);
        a->n_answered += e.token != UINT32_MAX;
        a->last_step = e.done ? step : 0;
    }
}

// Steps until the last of n is done; the steps are counted on from `step`.
static void run(struct ingot_engine *engine, struct asked *asked, uint32_t n, uint32_t step)
{
    bool busy = true;

    while (busy) {
        assert_true(++step < MOST_STEPS);
        assert_true(ingot_step(engine, &busy, NULL));
        for (uint32_t i = 0; i < n; i++)
            take(&asked[i], step);
    }
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(asked[i].n_answered, N_NEW);
        ingot_request_free(asked[i].request);
    }
}

static void step_once(struct ingot_engine *engine)
{
    bool busy;
    assert_true(ingot_step(engine, &busy, NULL));
}

static void assert_as_alone(const struct asked *asked, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct ingot_engine *engine = open_engine(512);
        struct asked alone = asked[i];
        struct ingot_request_options o = ingot_request_defaults();
        alone.n_answered = alone.last_step = 0;
        o.tokens = alone.tokens;
        o.n_tokens = alone.n;
        o.n_logits = 1;
        o.max_tokens = N_NEW;
        o.ignore_eos = true;
        alone.request = ingot_submit(engine, &o, NULL);
        run(engine, &alone, 1, 0);
        assert_memory_equal(alone.answer, asked[i].answer, sizeof alone.answer);
        assert_memory_equal(alone.logits, asked[i].logits, sizeof alone.logits);
        ingot_engine_close(engine);
    }
}

// The long one has the first step to itself, then half of each: 24 tokens are read in three.
static void a_short_prompt_is_not_kept_by_a_long_one(void **state)
{
    struct ingot_engine *engine = open_engine(N_BATCH);
    struct asked a[2] = { 0 };
    (void)state;

    submit(engine, &a[0], LONG, 0);
    step_once(engine);
    submit(engine, &a[1], SHORT, 0);
    run(engine, a, 2, 1);
    assert_int_equal(a[1].first_step, 1 + SHORT / (N_BATCH / 2));
    assert_true(a[0].first_step > a[1].last_step + 5);
    // the rows of the short one, and of its answer
    assert_in_range(a[0].first_step, LONG / N_BATCH, LONG / N_BATCH + 3);
    assert_as_alone(a, 2);
    ingot_engine_close(engine);
}

// Two pages are the same, which is no reason to wait for all the others.
static void a_common_beginning_is_worth_no_long_wait(void **state)
{
    struct ingot_engine *engine = open_engine(N_BATCH);
    struct asked a[2] = { 0 };
    (void)state;

    submit(engine, &a[0], LONG, 32);
    step_once(engine);
    submit(engine, &a[1], 40, 32);
    run(engine, a, 2, 1);
    assert_in_range(a[1].first_step, 1, 1 + 40 / (N_BATCH / 2));
    assert_as_alone(a, 2);
    submit(engine, &a[0], 100, 90); // but here the wait is short
    step_once(engine);
    submit(engine, &a[1], 100, 90);
    uint64_t before, after;
    struct ingot_engine_stats stats;
    ingot_engine_stats(engine, &stats);
    before = stats.n_rows;
    run(engine, a, 2, 1);
    ingot_engine_stats(engine, &stats);
    after = stats.n_rows;
    assert_true(after - before < 100 + 20 + 2 * N_NEW);
    ingot_engine_close(engine);
}

// Short ones without end, three at any time: the long prompt has half of every step.
static void the_long_one_is_not_starved(void **state)
{
    struct ingot_engine *engine = open_engine(N_BATCH);
    struct asked a[N_AT_ONCE] = { 0 };
    uint32_t step = 0, n_short = 0;
    (void)state;

    submit(engine, &a[0], LONG, 0);
    for (uint32_t i = 1; i < N_AT_ONCE; i++)
        submit(engine, &a[i], SHORT, 0);
    while (!a[0].first_step) {
        assert_true(++step < MOST_STEPS);
        step_once(engine);
        for (uint32_t i = 0; i < N_AT_ONCE; i++)
            take(&a[i], step);
        for (uint32_t i = 1; i < N_AT_ONCE; i++)
            if (a[i].last_step) {
                ingot_request_free(a[i].request);
                submit(engine, &a[i], SHORT, 0);
                n_short++;
            }
    }
    // answers have rows as well, up to three in a step
    assert_in_range(step, LONG / N_BATCH, 2 * LONG / N_BATCH + 15);
    assert_true(n_short >= 5);
    run(engine, a, N_AT_ONCE, step);
    assert_as_alone(a, 1);
    ingot_engine_close(engine);
}

// Of equals one is read after the other: sharing would make the first wait and help nobody.
static void equals_are_read_in_their_order(void **state)
{
    struct ingot_engine *engine = open_engine(N_BATCH);
    struct asked a[3] = { 0 };
    (void)state;

    for (uint32_t i = 0; i < 3; i++)
        submit(engine, &a[i], 64, 0);
    run(engine, a, 3, 0);
    assert_int_equal(a[0].first_step, 4);
    assert_true(a[1].first_step > a[0].first_step + 2);
    assert_true(a[2].first_step > a[1].first_step + 2);
    assert_as_alone(a, 3);
    ingot_engine_close(engine);
}

static void priority_goes_before_length(void **state)
{
    struct ingot_engine *engine = open_engine(N_BATCH);
    struct asked a[3] = { 0 };
    (void)state;

    a[1].priority = 1;
    a[2].priority = -1;
    submit(engine, &a[0], LONG, 0);
    step_once(engine);
    submit(engine, &a[1], SHORT, 0);
    submit(engine, &a[2], 2 * SHORT, 0);
    run(engine, a, 3, 1);
    assert_int_equal(a[2].first_step, 1 + 2 * SHORT / N_BATCH); // whole steps
    assert_true(a[1].first_step > a[0].first_step);             // nothing until the long one is read
    assert_as_alone(a, 3);
    ingot_engine_close(engine);
}

// A budget of one row: it goes to each in turn.
static void a_single_row_is_shared_too(void **state)
{
    struct ingot_engine *engine = open_engine(1);
    struct asked a[2] = { 0 };
    (void)state;

    submit(engine, &a[0], 60, 0);
    submit(engine, &a[1], 12, 0);
    run(engine, a, 2, 0);
    assert_in_range(a[1].first_step, 12, 2 * 12 + 1);
    assert_in_range(a[0].first_step, 72, 72 + 2 * N_NEW);
    assert_as_alone(a, 2);
    ingot_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_short_prompt_is_not_kept_by_a_long_one),
        cmocka_unit_test(a_common_beginning_is_worth_no_long_wait),
        cmocka_unit_test(the_long_one_is_not_starved),
        cmocka_unit_test(equals_are_read_in_their_order),
        cmocka_unit_test(priority_goes_before_length),
        cmocka_unit_test(a_single_row_is_shared_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
