// test_health.c - a device that stops computing, or computes wrong: it is found, its requests end with its
// error, and the engine goes on with the devices that are left. The device is a processor whose play is
// replaced; on the clock that the test makes.
#include <stdatomic.h>
#include "engine/api.h"
#include "engine/session.h"
#include "open_engine.h"

enum { N_NEW = 8 };
static const uint64_t SECOND = 1000000000;
static uint64_t fake_ns;

static uint64_t fake_clock(void)
{
    return fake_ns;
}

enum { NO_FAULT, REFUSES, DOES_NOTHING };

static struct device_ops breakable[2]; // of the devices, from before the first step on: stages read them
static atomic_int faults[2];
static const struct device_ops *made;

static bool play(struct device *d, struct tape *t, const struct buffer *step, uint32_t first, uint32_t last,
                 struct err *err)
{
    int fault = atomic_load(&faults[d->ops - breakable]);

    if (fault == REFUSES)
        return err_set(err, ERR_DEVICE, "%s: a step failed: it is broken", d->name);
    return fault == DOES_NOTHING || made->play(d, t, step, first, last, err);
}

static void have_no_memory(struct device *d, struct device_info *info)
{
    (void)d;
    *info = (struct device_info){ .name = "tiny", .memory_bytes = 1000, .free_bytes = 1000 };
}

static void make_breakable(const struct devices *all)
{
    made = all->at[0]->ops;
    for (uint32_t i = 0; i < all->n; i++) {
        breakable[i] = *made;
        breakable[i].play = play;
        atomic_store(&faults[i], NO_FAULT);
        all->at[i]->ops = &breakable[i];
    }
}

static void break_device(struct ingot_engine *engine, uint32_t i, bool silently)
{
    const struct device *d = engine->inner.loaded->devices.at[i];

    atomic_store(&faults[d->ops - breakable], silently ? DOES_NOTHING : REFUSES);
}

static struct ingot_engine *open_on(const char *device, const char *stages)
{
    struct ingot_engine_options o = ingot_engine_defaults();

    o.device = device;
    o.stages = stages;
    o.n_threads = 1;
    o.n_context = 256;
    o.n_sequences = 3;
    o.speculate = INGOT_SPECULATE_OFF;
    struct ingot_engine *engine = open_or_fail(&o);
    make_breakable(&engine->inner.loaded->devices);
    fake_ns = 1000 * SECOND;
    engine->inner.pace.clock = fake_clock;
    engine->inner.health.seen_ns = fake_ns;
    return engine;
}

static struct ingot_request_options question(struct ingot_session *session)
{
    static const uint32_t tokens[] = { 15, 60, 70, 11, 300, 8 };
    struct ingot_request_options r = greedy_request(tokens, 6, N_NEW);

    r.session = session;
    return r;
}

static bool keep_token(void *arg, const struct ingot_event *event)
{
    uint32_t *at = arg;

    if (event->token != UINT32_MAX)
        at[++at[0]] = event->token;
    return true;
}

static bool answers(struct ingot_engine *engine, struct ingot_session *session, uint32_t tokens[N_NEW + 2],
                    struct ingot_error *error)
{
    struct ingot_request_options r = question(session);

    tokens[0] = 0;
    return ingot_generate(engine, &r, keep_token, tokens, NULL, error);
}

static void a_device_knows_the_answer(void **state)
{
    static const char *const names[] = { "cpu", "cpu:plain" };
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct ingot_engine_options o = ingot_engine_defaults();
        struct devices d = { 0 };
        struct device_check c;
        struct err err = { 0 };
        o.device = names[i];
        assert_ok(devices_open(&d, &o, &err), &err);
        assert_ok(device_check_create(&c, d.at[0], &err), &err);
        for (int k = 0; k < 3; k++)
            assert_ok(device_check_run(&c, &err), &err);
        make_breakable(&d);
        atomic_store(&faults[0], DOES_NOTHING);
        assert_false(device_check_run(&c, &err));
        assert_int_equal(err.code, ERR_DEVICE);
        assert_non_null(strstr(err.message, "computes wrong"));
        device_check_release(&c);
        devices_close(&d);
    }
}

// What it answers afterwards is what one processor answers.
static void expect_served(struct ingot_engine *engine, struct ingot_session *session)
{
    struct ingot_engine *whole = open_on("cpu", NULL);
    struct ingot_error error = { 0 };
    struct ingot_engine_info info;
    uint32_t want[N_NEW + 2], got[N_NEW + 2];

    assert_true(answers(whole, NULL, want, &error));
    for (int i = 0; i < 2; i++) {
        if (!answers(engine, i ? session : NULL, got, &error))
            fail_msg("%s", error.message);
        assert_int_equal(got[0], N_NEW);
        assert_memory_equal(want, got, (N_NEW + 1) * sizeof *got);
    }
    ingot_engine_info(engine, &info);
    assert_int_equal(info.n_stages, 1);
    assert_true(strncmp(info.device, "cpu: ", 5) == 0);
    assert_string_equal(engine->inner.health.lost, "cpu");
    ingot_engine_close(whole);
}

static void check_lost(uint32_t which, bool early)
{
    struct ingot_engine *engine = open_on("cpu,cpu", "3");
    struct ingot_session *session = ingot_session_create(engine, NULL);
    struct ingot_request_options r = question(NULL), of_session = question(session);
    struct ingot_request *requests[] = { ingot_submit(engine, &r, NULL),
                                         ingot_submit(engine, &of_session, NULL) };
    struct ingot_event event;
    bool busy = true;

    for (int i = 0; i < 3 && !early; i++)
        assert_true(ingot_step(engine, &busy, NULL));
    break_device(engine, which, false);
    busy = true;
    for (int i = 0; i < 4 && busy;
         i++) // where steps follow each other, it is seen when this one is waited for
        assert_true(ingot_step(engine, &busy, NULL)); // the engine has recovered
    assert_false(busy);
    for (int i = 0; i < 2; i++) {
        do
            assert_true(ingot_poll(requests[i], &event));
        while (!event.done);
        assert_int_equal(event.result->finish, INGOT_FINISH_ERROR);
        assert_int_equal(event.result->error.code, INGOT_DEVICE);
        assert_string_equal(event.result->error.message, "cpu: a step failed: it is broken");
        ingot_request_free(requests[i]);
    }
    assert_int_equal(ingot_session_n_tokens(session), 0);
    expect_served(engine, session);
    ingot_session_free(session);
    ingot_engine_close(engine);
}

static void a_lost_device_leaves_the_others(void **state)
{
    (void)state;
    for (uint32_t which = 0; which < 2; which++)
        for (int early = 0; early < 2; early++)
            check_lost(which, early);
}

// Nobody sees a wrong answer after a minute without work, or after NaN.
static void a_device_that_computes_wrong_is_found(void **state)
{
    (void)state;
    for (int doubt = 0; doubt < 2; doubt++) {
        struct ingot_engine *engine = open_on("cpu,cpu", "3");
        struct ingot_session *session = ingot_session_create(engine, NULL);
        struct ingot_error error = { 0 };
        uint32_t tokens[N_NEW + 2];
        break_device(engine, 1, true);
        fake_ns += 60 * SECOND;
        assert_true(answers(engine, NULL, tokens, &error)); // wrong ones: nobody has asked yet
        if (doubt)
            engine->inner.health.in_doubt = true;
        else
            fake_ns += 61 * SECOND;
        assert_false(answers(engine, NULL, tokens, &error));
        assert_int_equal(error.code, INGOT_DEVICE);
        assert_int_equal(tokens[0], 0);
        assert_non_null(strstr(error.message, "computes wrong"));
        expect_served(engine, session);
        ingot_session_free(session);
        ingot_engine_close(engine);
    }
}

static void expect_failed(struct ingot_engine *engine, const char *what)
{
    struct ingot_error error = { 0 };
    uint32_t tokens[N_NEW + 2];

    for (int i = 0; i < 3; i++) {
        assert_false(answers(engine, NULL, tokens, &error));
        assert_int_equal(error.code, INGOT_DEVICE);
        assert_non_null(strstr(error.message, "it is broken"));
    }
    assert_non_null(strstr(error.message, what));
    ingot_engine_close(engine);
}

static void without_a_device_left_it_stays_failed(void **state)
{
    struct ingot_engine *engine = open_on("cpu", "2,3");
    (void)state;
    break_device(engine, 0, false);
    expect_failed(engine, "it is broken");
    engine = open_on("cpu,cpu", "3");
    break_device(engine, 0, false);
    break_device(engine, 1, false);
    expect_failed(engine, "it is broken");
}

static void without_room_it_stays_failed(void **state)
{
    struct ingot_engine *engine = open_on("cpu,cpu", "3");
    uint32_t tokens[N_NEW + 2];
    (void)state;
    break_device(engine, 1, false);
    breakable[0].info = have_no_memory;
    assert_false(answers(engine, NULL, tokens, NULL));
    expect_failed(engine, "without it there is no way on: ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_knows_the_answer),
        cmocka_unit_test(a_lost_device_leaves_the_others),
        cmocka_unit_test(a_device_that_computes_wrong_is_found),
        cmocka_unit_test(without_a_device_left_it_stays_failed),
        cmocka_unit_test(without_room_it_stays_failed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
