// test_devices_metal.c - one model over Metal and the CPU: every border, both orders, and Metal beside
// itself. On the emulator.
#include "device_pairs.h"
#include "engine/api.h"
#include "metal_emu.h"

static const char *const pairs[] = { "cpu,metal", "metal,cpu", "metal,cpu:plain", "cpu:plain,metal",
                                     "metal,metal" };

static void the_logits_are_the_reference_s(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        check_pair_of_devices(pairs[i], i % 2);
    check_golden_split(&(struct golden_run){ "qwen3", "/model.gguf", "cpu,metal,cpu:plain", 7, false },
                       "1,2");
    check_golden_split(&(struct golden_run){ "qwen3", "/model.gguf", "metal,cpu,metal", 7, false }, "1,2");
}

static void the_text_is_the_cpu_s(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i += 2)
        check_story_on_pair(pairs[i]);
}

// A stage that follows on the same device reads the block in order, without a wait: the checker would see a
// race. Steps are played ahead over both stages.
static void stages_of_one_gpu_do_not_race(void **state)
{
    (void)state;
    emu_set("check", 1);
    check_golden_split(&(struct golden_run){ "qwen3", "/model.gguf", "metal", 7, false }, "1,2");
    emu_set("check", 0);
    check_story_on_pair("metal");
}

static int keep_to_the_build_folder(void **state)
{
    (void)state;
    return setenv("XDG_STATE_HOME", METAL_MADE, 1); // pipelines are archived there
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_logits_are_the_reference_s),
        cmocka_unit_test(the_text_is_the_cpu_s),
        cmocka_unit_test(stages_of_one_gpu_do_not_race),
    };
    return cmocka_run_group_tests(tests, keep_to_the_build_folder, NULL);
}
