// test_outline.c - the memory that is predicted before loading is what an engine takes, by part: dense
// models, mixtures, latent attention, windows, recurrent layers, a layer that drafts, an encoder, and towers.
#include "memory_parts.h"

static struct ingot_engine_options options_of(const char *model)
{
    struct ingot_engine_options o = ingot_engine_defaults();

    o.model = model;
    o.device = "cpu";
    o.n_threads = 2;
    o.n_sequences = 3;
    o.n_context = 100;
    return o;
}

static void models_take_what_was_predicted(void **state)
{
    static const struct {
        const char *model;
        bool odd;
    } models[] = { { SOURCE_DIR "/models/ingot-7m-q8_0.gguf", false },
                   { SOURCE_DIR "/models/ingot-7m", false },
                   { SOURCE_DIR "/tests/golden/gemma3/model.gguf", true },
                   { SOURCE_DIR "/tests/golden/gemma4-e2b/model.gguf", true },
                   { SOURCE_DIR "/tests/golden/qwen3moe/model.gguf", true },
                   { SOURCE_DIR "/tests/golden/gptoss/model.gguf", true },
                   { SOURCE_DIR "/tests/golden/glm47-flash/model.gguf", true },
                   { SOURCE_DIR "/tests/golden/qwen35/model.gguf", true },
                   { SOURCE_DIR "/tests/golden/mtp-deepseek3", true },
                   { SOURCE_DIR "/tests/golden/exl3", true },
                   { SOURCE_DIR "/tests/golden/exl3-experts", true },
                   { SOURCE_DIR "/tests/golden/exl3-moe", true },
                   { SOURCE_DIR "/tests/golden/smolvlm", true },
                   { SOURCE_DIR "/tests/golden/internvl", true },
                   { SOURCE_DIR "/models/ingot-eyes-q8_0.gguf", false } };

    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct ingot_engine_options o = options_of(models[i].model);
        check_memory_parts(&o, models[i].odd);
    }
}

static void options_are_taken_into_account(void **state)
{
    struct ingot_engine_options o = options_of(SOURCE_DIR "/models/ingot-7m-q8_0.gguf");

    (void)state;
    o.n_batch = 64;
    o.n_logit_rows = 64;
    check_memory_parts(&o, false);
    o.exact = o.no_repack = true;
    check_memory_parts(&o, false);
    o.device = "cpu:plain";
    check_memory_parts(&o, false);
    o = options_of(SOURCE_DIR "/models/ingot-7m-q8_0.gguf");
    o.stages = "1,3";
    check_memory_parts(&o, false);
    o.device = "cpu,cpu:plain";
    o.stages = "3";
    check_memory_parts(&o, false);
    o = options_of(SOURCE_DIR "/models/ingot-7m-q8_0.gguf");
    o.n_tensor_parallel = 2;
    check_memory_parts(&o, true); // each rank counts a tied matrix's rows in the file, which no one takes
    o.model = SOURCE_DIR "/models/ingot-eyes-q8_0.gguf";
    check_memory_parts(&o, true);
    o = options_of(SOURCE_DIR "/tests/golden/qwen3moe/model.gguf");
    o.experts = "cpu:1";
    check_memory_parts(&o, true);
}

// A stage that begins where a layer needs what another stage has cannot be made.
static void an_impossible_stage_is_refused(void **state)
{
    struct ingot_engine_options o = options_of(SOURCE_DIR "/tests/golden/gemma4-e2b/model.gguf");
    struct ingot_error error = { 0 };
    struct ingot_memory m;

    (void)state;
    o.device = "cpu,cpu";
    o.stages = "1";
    assert_fails(ingot_engine_estimate(&o, &m, &error), &error, "one stage");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_take_what_was_predicted),
        cmocka_unit_test(options_are_taken_into_account),
        cmocka_unit_test(an_impossible_stage_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
