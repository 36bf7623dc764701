// test_estimate.c - what an engine will need is known before it is opened, and the log goes where the program
// wants it.
#include "base/log.h"
#include "open_engine.h"

static void the_estimate_is_what_an_engine_takes(void **state)
{
    (void)state;
    const char *const models[] = { SOURCE_DIR "/models/ingot-7m-q8_0.gguf",
                                   SOURCE_DIR "/tests/golden/qwen3/model.gguf",
                                   SOURCE_DIR "/tests/golden/qwen3moe/model.gguf",
                                   SOURCE_DIR "/tests/golden/qwen2moe/model.gguf",
                                   SOURCE_DIR "/tests/golden/mtp-deepseek3",
                                   SOURCE_DIR "/tests/golden/smolvlm",
                                   SOURCE_DIR "/tests/golden/internvl",
                                   SOURCE_DIR "/models/ingot-eyes-q8_0.gguf",
                                   INGOT_BUILTIN_EYES };
    for (int i = 0; i < 9; i++) {
        struct ingot_engine_options o = ingot_engine_defaults();
        struct ingot_memory memory;
        struct ingot_engine_info info;
        struct ingot_error error;
        o.model = models[i];
        o.device = "cpu";
        o.n_sequences = 3;
        o.n_context = 100;
        o.cache_type_v = INGOT_KV_F32;
        assert_ok(ingot_engine_estimate(&o, &memory, &error), &error);
        struct ingot_engine *engine = open_or_fail(&o);
        ingot_engine_info(engine, &info);
        assert_int_equal(memory.weight_bytes, info.weight_bytes);
        assert_int_equal(memory.page_bytes, info.page_bytes);
        assert_in_range(memory.scratch_bytes, info.scratch_bytes, 1 << 30);
        assert_true(memory.free_bytes > 0 && memory.free_bytes <= memory.device_bytes);
        ingot_engine_close(engine);
    }
}

static void an_estimate_fails_as_opening_does(void **state)
{
    (void)state;
    struct ingot_engine_options o = ingot_engine_defaults(), zero = { 0 };
    struct ingot_memory memory;
    struct ingot_error error, at_open;
    assert_fails(ingot_engine_estimate(&zero, &memory, &error), &error, "start from ingot_engine_defaults()");
    o.model = "/nowhere/model.gguf";
    assert_fails(ingot_engine_estimate(&o, &memory, &error), &error, "/nowhere/model.gguf");
    assert_null(ingot_engine_open(&o, &at_open));
    assert_string_equal(error.message, at_open.message);
    o.model = SOURCE_DIR "/models/ingot-7m-q8_0.gguf";
    o.device = "abacus";
    assert_fails(ingot_engine_estimate(&o, &memory, &error), &error, "abacus");
}

struct lines {
    unsigned n;
    int level;
    char tag[16], message[200];
};

static void note_line(void *arg, int level, const char *tag, const char *message)
{
    struct lines *l = arg;
    l->n++;
    l->level = level;
    snprintf(l->tag, sizeof l->tag, "%s", tag);
    snprintf(l->message, sizeof l->message, "%s", message);
}

static void the_log_goes_to_the_program(void **state)
{
    (void)state;
    struct lines l = { 0 };
    struct ingot_engine_options o = ingot_engine_defaults();
    o.model = SOURCE_DIR "/tests/golden/llama2/model.gguf";
    o.n_context = 1 << 16;
    ingot_log_set(INGOT_LOG_WARNING, note_line, &l);
    ingot_engine_close(open_or_fail(&o));
    assert_int_equal(l.n, 1);
    assert_int_equal(l.level, INGOT_LOG_WARNING);
    assert_string_equal(l.tag, "load");
    assert_non_null(strstr(l.message, "a context of 65536 tokens is asked for"));
    ingot_log_set(INGOT_LOG_ERROR, note_line, &l);
    ingot_engine_close(open_or_fail(&o));
    assert_int_equal(l.n, 1); // only what is asked for
    ingot_log_set(INGOT_LOG_WARNING, NULL, NULL);
    log_line(LOG_WARN, "test", "on stderr");
    assert_int_equal(l.n, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_estimate_is_what_an_engine_takes),
        cmocka_unit_test(an_estimate_fails_as_opening_does),
        cmocka_unit_test(the_log_goes_to_the_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
