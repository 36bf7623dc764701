// test_outline_metal.c - the memory that is predicted for a Metal device is what an engine takes there, by
// part. On the emulator; on a Mac on its GPU.
#include "engine/memory_parts.h"
#include <stdlib.h>

static void models_take_what_was_predicted(void **state)
{
    static const struct {
        const char *model;
        bool odd;
    } models[] = { { SOURCE_DIR "/models/ingot-7m-q8_0.gguf", false },
                   { SOURCE_DIR "/tests/golden/gemma3/model.gguf", true },
                   { SOURCE_DIR "/tests/golden/qwen3moe/model.gguf", true },
                   { SOURCE_DIR "/tests/golden/glm47-flash/model.gguf", true },
                   { SOURCE_DIR "/tests/golden/qwen35/model.gguf", true },
                   { SOURCE_DIR "/models/ingot-eyes-q8_0.gguf", false } };

    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct ingot_engine_options o = ingot_engine_defaults();
        o.model = models[i].model;
        o.device = "metal";
        o.n_sequences = 3;
        o.n_context = 100;
        check_memory_parts(&o, models[i].odd);
    }
}

static int keep_to_the_build_folder(void **state)
{
    (void)state;
    return setenv("XDG_STATE_HOME", BINARY_DIR "/metal", 1); // pipelines are archived there
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(models_take_what_was_predicted) };

    return cmocka_run_group_tests(tests, keep_to_the_build_folder, NULL);
}
