// test_devices.c - an engine on several devices: what one CPU computes, two compute to the bit; unlike ones
// within the gates and with the same text. Pages, sessions and pauses over two devices: test_prefix.
#include "device_pairs.h"
#include "engine/api.h"
#include "engine/api/verify.h"
#include "engine/stage/link.h"

#define SHIPPED SOURCE_DIR "/models/ingot-7m-q8_0.gguf"

static void two_cpus_compute_the_bits_of_one(void **state)
{
    static const char *const borders[] = { "1", "2", "3", "4", "5", "6", "7" };
    struct ingot_engine_options o = ingot_engine_defaults();
    struct golden g;
    (void)state;

    golden_open(&g, "ingot-7m");
    o.model = SHIPPED;
    o.device = "cpu";
    o.n_batch = 33;
    size_t bytes = (size_t)g.n * g.n_vocab * sizeof(float);
    float *whole = run_logits(&o, &g);
    o.device = "cpu,cpu";
    for (size_t i = 0; i <= sizeof borders / sizeof *borders; i++) {
        o.stages = i < sizeof borders / sizeof *borders ? borders[i] : NULL;
        float *split = run_logits(&o, &g);
        assert_memory_equal(whole, split, bytes);
        free(split);
    }
    o.device = "cpu,cpu,cpu";
    o.stages = "3,4";
    float *thirds = run_logits(&o, &g);
    assert_memory_equal(whole, thirds, bytes);
    free(thirds);
    free(whole);
    model_file_close(g.file);
}

static void unlike_cpus_keep_to_the_gates(void **state)
{
    static const char *const pairs[] = { "cpu,cpu", "cpu,cpu:plain", "cpu:plain,cpu", "cpu:plain,cpu:plain" };
    (void)state;

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        for (int exact = 0; exact < 2; exact++)
            check_pair_of_devices(pairs[i], exact);
    check_golden_split(&(struct golden_run){ "qwen3", "", "cpu,cpu:plain,cpu", 7, true }, "1,2");
    check_golden_split(&(struct golden_run){ "gptoss", "/model.gguf", "cpu:plain,cpu", 7, true }, "1");
    check_golden_split(&(struct golden_run){ "deepseek3", "/model.gguf", "cpu,cpu:plain", 7, true }, "2");
}

static void unlike_cpus_tell_the_same_story(void **state)
{
    (void)state;
    check_story_on_pair("cpu,cpu:plain", 1);
    check_story_on_pair("cpu:plain,cpu", 1);
}

static void a_session_goes_on_over_two_devices(void **state)
{
    static const char *const devices[] = { "cpu", "cpu,cpu" };
    char stories[2][STORY_BYTES] = { "", "" };
    (void)state;

    for (int i = 0; i < 2; i++) {
        struct ingot_engine_options o = ingot_engine_defaults();
        struct ingot_error error = { 0 };
        struct ingot_result result;
        o.model = SHIPPED;
        o.device = devices[i];
        o.stages = i ? "4" : NULL;
        o.no_prefix_cache = true;
        struct ingot_engine *engine = open_or_fail(&o);
        struct ingot_session *session = ingot_session_create(engine, &error);
        struct ingot_message messages[3] = { { .role = "user", .content = "Tell me about a fox." } };
        for (uint32_t turn = 0; turn < 2; turn++) {
            struct ingot_request_options r = ingot_request_defaults();
            r.session = session;
            r.messages = messages;
            r.n_messages = 1 + 2 * turn;
            r.max_tokens = 30;
            r.sampling.repeat_penalty = 1.2f; // reads the prompt's tokens on the last device
            r.sampling.seed = 5;
            assert_true(ingot_generate(engine, &r, append_story, stories[i], &result, &error));
            assert_true(turn == 0 || result.n_reused > 0);
            messages[1] = (struct ingot_message){ .role = "assistant", .content = "A fox lives here." };
            messages[2] = (struct ingot_message){ .role = "user", .content = "And a bear?" };
        }
        ingot_session_free(session);
        ingot_engine_close(engine);
    }
    assert_string_equal(stories[0], stories[1]);
}

static void every_stage_is_on_its_device(void **state)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct ingot_engine_info info;
    struct ingot_memory memory;
    struct ingot_error error;
    (void)state;

    o.model = SHIPPED;
    o.device = "cpu:plain,cpu";
    o.stages = "3";
    struct ingot_engine *engine = open_or_fail(&o);
    ingot_engine_info(engine, &info);
    assert_string_equal(info.device, "cpu:plain for layers 0 to 2, cpu for layers 3 to 7");
    assert_int_equal(info.n_stages, 2);
    assert_int_equal(info.cache_type_k, INGOT_KV_F16); // one format for both
    const struct stage *stages = engine->inner.loaded->stages;
    assert_true(stages[0].shape.exact && !stages[1].shape.exact);
    assert_true(stages[0].block.host != stages[1].block.host); // they may compute at the same time
    assert_true(stages[0].history.host != stages[1].history.host);
    ingot_engine_close(engine);
    assert_true(ingot_engine_estimate(&o, &memory, &error));
    assert_true(memory.device_bytes > 0); // the host's memory, once
    o.device = "cpu";
    o.cache_type_k = o.cache_type_v = INGOT_KV_F16;
    struct ingot_memory one;
    assert_true(ingot_engine_estimate(&o, &one, &error));
    assert_int_equal(one.device_bytes, memory.device_bytes);
    assert_int_equal(one.page_bytes, memory.page_bytes);
}

// Stages of one device work on one block and one history, and steps are still played ahead.
static void stages_of_one_device_copy_nothing(void **state)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    (void)state;

    o.model = SHIPPED;
    o.device = "cpu";
    o.stages = "2,5";
    struct ingot_engine *engine = open_or_fail(&o);
    const struct engine_loaded *l = engine->inner.loaded;
    for (uint32_t i = 1; i < l->n_stages; i++) {
        assert_true(l->stages[i].block.host == l->stages[0].block.host);
        assert_true(l->stages[i].history.host == l->stages[0].history.host);
        assert_true(l->stages[i].table.host == l->stages[0].table.host);
        assert_null(l->links[i - 1].room);
    }
    ingot_engine_close(engine);
}

static void weights_of_ranges_add_up(void **state)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    (void)state;

    o.model = SOURCE_DIR "/tests/golden/qwen3/model.gguf";
    o.device = "cpu";
    struct ingot_engine *engine = open_or_fail(&o);
    const struct model *m = &engine->inner.loaded->model;
    const struct stage_shape *shape = &engine->inner.loaded->stages[0].shape;
    const struct file_tensor *head = MODEL_TENSOR(m, head);
    struct place_memory whole = place_memory(m, shape, NULL),
                        first = place_range_memory(m, shape, (struct layer_range){ 0, 1 }),
                        rest = place_range_memory(m, shape, (struct layer_range){ 1, m->config.n_layers });
    assert_int_equal(first.weights + rest.weights, whole.weights + (m->tied ? head->bytes : 0));
    assert_int_equal(first.pages + rest.pages, whole.pages);
    assert_true(first.scratch < whole.scratch && rest.scratch == whole.scratch);
    ingot_engine_close(engine);
}

static bool print_bad(void *arg, const struct verify_finding *f)
{
    (void)arg;
    if (!(f->error <= f->limit))
        print_message("stage %u %s: error %g, limit %g\n", f->stage, f->label, f->error, f->limit);
    return true;
}

static void every_device_agrees_with_the_plain_loops(void **state)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct verification v = { .n_rows = 17, .on_command = print_bad, .n_bad = 1 };
    struct err err = { 0 };
    (void)state;

    o.model = SHIPPED;
    o.device = "cpu,cpu:plain";
    o.stages = "3";
    assert_ok(engine_verify(&o, &v, &err), &err);
    assert_int_equal(v.n_bad, 0);
}

static void bad_lists_are_refused(void **state)
{
    static const struct {
        const char *device, *stages, *message;
    } cases[] = {
        { "cpu,", NULL, "device \"\"; want auto, cpu" },
        { ",cpu", NULL, "device \"\"; want auto, cpu" },
        { "", NULL, "device \"\"; want auto, cpu" },
        { "cpu,gpu", NULL, "device \"gpu\"" },
        { "cpu,cuda:x", NULL, "device \"cuda:x\"" },
        { "cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu", NULL, "want at most 8" },
        { "cpu,cpu,cpu", "1", "stages \"1\" are 2 and 3 devices are named" },
    };
    (void)state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ingot_engine_options o = ingot_engine_defaults();
        struct ingot_error error = { 0 };
        o.model = SOURCE_DIR "/tests/golden/llama3/model.gguf";
        o.device = cases[i].device;
        o.stages = cases[i].stages;
        assert_null(ingot_engine_open(&o, &error));
        if (!strstr(error.message, cases[i].message))
            fail_msg("message '%s' does not contain '%s'", error.message, cases[i].message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_cpus_compute_the_bits_of_one),
        cmocka_unit_test(unlike_cpus_keep_to_the_gates),
        cmocka_unit_test(unlike_cpus_tell_the_same_story),
        cmocka_unit_test(a_session_goes_on_over_two_devices),
        cmocka_unit_test(every_stage_is_on_its_device),
        cmocka_unit_test(stages_of_one_device_copy_nothing),
        cmocka_unit_test(weights_of_ranges_add_up),
        cmocka_unit_test(every_device_agrees_with_the_plain_loops),
        cmocka_unit_test(bad_lists_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
