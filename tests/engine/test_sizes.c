// test_sizes.c - what ingot.h promises of its structs: sizes of 0 and of newer programs are errors, shorter
// ones get the defaults. A program that was really built with shorter structs is tests/library/older.c.
#include "engine/api/sizes.h"
#include "open_engine.h"

static struct ingot_engine *toy(void)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    o.model = SOURCE_DIR "/models/ingot-7m-q8_0.gguf";
    o.n_threads = 1;
    return open_or_fail(&o);
}

static void a_size_is_told_from_the_defaults(void **state)
{
    (void)state;
    struct ingot_engine_options zero = { 0 }, newer = ingot_engine_defaults();
    struct ingot_error error;
    newer.size++;
    assert_fails(ingot_engine_open(&zero, &error), &error,
                 "the size of ingot_engine_options is 0; start from ingot_engine_defaults()");
    assert_int_equal(error.code, INGOT_INPUT);
    assert_fails(ingot_engine_open(&newer, &error), &error, "use a newer library");
}

static void every_size_of_a_request_is_checked(void **state)
{
    (void)state;
    struct ingot_engine *engine = toy();
    struct ingot_request_options r = ingot_request_defaults();
    const char *const names[] = { "ingot_request_options", "ingot_message", "ingot_event", "ingot_result" };
    size_t *const sizes[] = { &r.size, &r.message_size, &r.event_size, &r.result_size };
    struct ingot_error error;
    struct ingot_result result;
    char *text, part[100];
    r.text = "Hello";
    r.max_tokens = 1;
    for (int i = 0; i < 4; i++) {
        size_t right = *sizes[i];
        *sizes[i] = 0;
        snprintf(part, sizeof part, "the size of %s is 0; start from ingot_request_defaults()", names[i]);
        assert_fails(ingot_generate(engine, &r, NULL, NULL, NULL, &error), &error, part);
        assert_fails(ingot_submit(engine, &r, &error), &error, part);
        assert_fails(ingot_generate_batch(engine, &r, 1, &result, &text, &error), &error, part);
        *sizes[i] = right + 8;
        snprintf(part, sizeof part, "%s has %zu bytes", names[i], right + 8);
        assert_fails(ingot_generate(engine, &r, NULL, NULL, NULL, &error), &error, part);
        *sizes[i] = right;
    }
    assert_ok(ingot_generate(engine, &r, NULL, NULL, NULL, &error), &error);
    ingot_engine_close(engine);
}

static void shorter_options_get_defaults(void **state)
{
    (void)state;
    struct ingot_engine_options o, all = ingot_engine_defaults();
    struct err err;
    memset(&o, 0xff, sizeof o);
    ingot_engine_options_init(&o, offsetof(struct ingot_engine_options, n_sequences));
    assert_int_equal(o.n_sequences, UINT32_MAX); // what the program does not have is not touched
    o.n_context = 100;
    struct ingot_engine_options taken;
    assert_ok(sizes_take_engine(&taken, &o, &err), &err);
    assert_int_equal(taken.n_context, 100);
    assert_int_equal(taken.n_sequences, all.n_sequences);
    assert_true(taken.step_stretch == all.step_stretch);
    assert_null(taken.progress);
}

static void only_so_much_is_filled(void **state)
{
    (void)state;
    struct ingot_engine *engine = toy();
    struct ingot_engine_info info;
    struct ingot_engine_stats stats;
    unsigned char longer[sizeof info + 16];
    memset(&info, 0xff, sizeof info);
    memset(&stats, 0xff, sizeof stats);
    memset(longer, 0xff, sizeof longer);
    ingot_engine_info_fill(engine, &info, offsetof(struct ingot_engine_info, n_layers));
    assert_true(info.weight_bytes > 0 && info.weight_bytes < 1 << 30);
    assert_int_equal(info.n_layers, UINT32_MAX);
    ingot_engine_info_fill(engine, (struct ingot_engine_info *)longer, sizeof longer);
    for (size_t i = 0; i < 16; i++)
        assert_int_equal(longer[sizeof info + i], 0);
    ingot_engine_stats_fill(engine, &stats, offsetof(struct ingot_engine_stats, n_pages));
    assert_int_equal(stats.n_running, 0);
    assert_int_equal(stats.n_pages, UINT32_MAX);
    ingot_engine_close(engine);
}

static void a_role_is_a_known_one(void **state)
{
    (void)state;
    struct ingot_engine *engine = toy();
    struct ingot_request_options r = ingot_request_defaults();
    struct ingot_message m[2] = { { .role = "user", .content = "Hello" },
                                  { .role = "human", .content = "Hello" } };
    struct ingot_error error;
    r.messages = m;
    r.n_messages = 2;
    r.max_tokens = 1;
    assert_fails(ingot_generate(engine, &r, NULL, NULL, NULL, &error), &error,
                 "message 1 has the role \"human\"; want system, user, assistant or tool");
    m[1].role = NULL;
    assert_fails(ingot_generate(engine, &r, NULL, NULL, NULL, &error), &error,
                 "message 1 has the role \"(null)\"");
    m[1].role = "assistant";
    m[1].content = "\xff";
    assert_fails(ingot_generate(engine, &r, NULL, NULL, NULL, &error), &error,
                 "message 1, of the role assistant: byte 0 is not UTF-8");
    r.n_messages = 1;
    r.sampling.reserved[2] = 9;
    assert_fails(ingot_generate(engine, &r, NULL, NULL, NULL, &error), &error,
                 "reserved word 2 of the sampling is 9; want 0");
    ingot_engine_close(engine);
}

// Takes nothing for n steps; then everything. How the request ended.
static enum ingot_finish end_unread(struct ingot_engine *engine, uint32_t n_unread, struct ingot_error *error)
{
    struct ingot_request_options r = ingot_request_defaults();
    struct ingot_event e = { 0 };
    bool busy = true;
    r.text = "Once upon a time";
    r.n_logits = 1;
    r.max_tokens = 12;
    r.n_unread = n_unread;
    r.ignore_eos = true;
    struct ingot_request *q = ingot_submit(engine, &r, error);
    assert_non_null(q);
    while (busy)
        ingot_step(engine, &busy, error);
    for (uint32_t n = 0; ingot_poll(q, &e); n++)
        assert_true(e.done || e.logits || n >= n_unread);
    assert_true(e.done);
    enum ingot_finish finish = e.result->finish;
    *error = e.result->error;
    ingot_request_free(q);
    return finish;
}

static void unread_logits_are_bounded(void **state)
{
    (void)state;
    struct ingot_engine *engine = toy();
    struct ingot_error error;
    assert_int_equal(end_unread(engine, 0, &error), INGOT_FINISH_LENGTH);
    assert_int_equal(end_unread(engine, 12, &error), INGOT_FINISH_LENGTH);
    assert_int_equal(end_unread(engine, 11, &error), INGOT_FINISH_ERROR);
    assert_int_equal(error.code, INGOT_LIMIT);
    assert_non_null(strstr(
        error.message, "11 rows of logits wait to be taken; take events between steps, or raise n_unread"));
    ingot_engine_close(engine);
}

static void the_version_is_the_headers(void **state)
{
    (void)state;
    char text[40];
    snprintf(text, sizeof text, "%d.%d.%d", INGOT_VERSION_MAJOR, INGOT_VERSION_MINOR, INGOT_VERSION_PATCH);
    assert_string_equal(ingot_version(), text);
    assert_int_equal(ingot_abi(), INGOT_ABI);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_size_is_told_from_the_defaults),
        cmocka_unit_test(every_size_of_a_request_is_checked),
        cmocka_unit_test(shorter_options_get_defaults),
        cmocka_unit_test(only_so_much_is_filled),
        cmocka_unit_test(a_role_is_a_known_one),
        cmocka_unit_test(unread_logits_are_bounded),
        cmocka_unit_test(the_version_is_the_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
