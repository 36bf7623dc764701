// test_devices_metal.c - one model over Metal and the CPU: every border, both orders, and Metal beside
// itself. On the emulator.
#include "device/link_speed.h"
#include "device/metal/metal.h"
#include "device_pairs.h"
#include "engine/api.h"
#include "metal_emu.h"
#include "ops/metal_table.h"

// Of the borders of the shipped model, whose layers are alike, the first, the middle one and the last; on the
// CPU and on CUDA all of them. A story takes the emulator 3.5 seconds.
enum { EMULATED_STEP = 3 };

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
        check_story_on_pair(pairs[i], EMULATED_STEP);
}

// A stage that follows on the same device reads the block in order, without a wait: the checker would see a
// race. Steps are played ahead over both stages.
static void stages_of_one_gpu_do_not_race(void **state)
{
    (void)state;
    emu_set("check", 1);
    check_golden_split(&(struct golden_run){ "qwen3", "/model.gguf", "metal", 7, false }, "1,2");
    emu_set("check", 0);
    check_story_on_pair("metal", EMULATED_STEP);
}

static void links_have_a_speed(void **state)
{
    struct metal_options options = { .table = &metal_table };
    struct link_speed speed;
    struct err err;
    (void)state;

    struct device *a = metal_open(&options, &err), *b = metal_open(&options, &err);
    assert_true(a && b);
    assert_ok(link_speed_measure(NULL, a, &speed, &err), &err);
    assert_true(speed.there > 0 && speed.back > 0 && speed.latency_s > 0 && !speed.sends && !speed.direct);
    assert_ok(link_speed_measure(a, b, &speed, &err), &err);
    assert_true(speed.there > 0 && speed.back > 0 && !speed.sends);
    device_close(a);
    device_close(b);
}

// A GPU that leaves the experts to the CPU needs no kernels for them.
static void experts_on_the_cpu_give_the_reference_s_logits(void **state)
{
    static const char *const variants[] = { "mixtral",    "qwen2moe", "qwen3moe",     "olmoe",
                                            "granitemoe", "gptoss",   "gptoss-mxfp4", "glm45" };
    (void)state;

    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
        check_golden_placed(&(struct golden_run){ variants[i], "/model.gguf", "metal", 7, true }, NULL,
                            i % 2 ? "cpu" : "cpu:plain");
    check_golden_placed(&(struct golden_run){ "qwen3moe", "/model.gguf", "metal,metal", 9, true }, "1",
                        "cpu");
}

static int keep_to_the_build_folder(void **state)
{
    (void)state;
    return setenv("XDG_STATE_HOME", BINARY_DIR "/metal", 1); // pipelines are archived there
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_logits_are_the_reference_s),
        cmocka_unit_test(the_text_is_the_cpu_s),
        cmocka_unit_test(stages_of_one_gpu_do_not_race),
        cmocka_unit_test(links_have_a_speed),
        cmocka_unit_test(experts_on_the_cpu_give_the_reference_s_logits),
    };
    return cmocka_run_group_tests(tests, keep_to_the_build_folder, NULL);
}
