// test_lora_metal.c - the Metal kernels of what adapters add to products against the plain loops, on the
// emulator.
#include "emu_modes.h"
#pragma GCC diagnostic ignored "-Wunused-function" // of the recorders there, those of other operations
#include "models/lora_families.h"
#include "ops/lora_sides.h"

static void sums_of_every_shape(void **state)
{
    (void)state;
    check_lora_on(gpu);
}

static void adapters_give_the_logits_of_merged_weights(void **state)
{
    const struct golden_run run = { .device = "metal", .n_batch = 30, .exact = true };

    (void)state;
    check_golden_lora(&golden_loras[0], 0, &run);
    check_golden_lora(&golden_loras[3], 3, &run);
    check_golden_lora(&golden_loras[4], 2, &run);
}

static void adapters_of_families_are_merged_weights(void **state)
{
    static const char *const families[] = { "gemma4-e2b", "lfm2", "qwen35", "granitehybrid", "nemotronh" };

    lora_families_begin(state);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        check_family(families[i], "metal");
    lora_families_end(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_every_shape),
        cmocka_unit_test(adapters_give_the_logits_of_merged_weights),
        cmocka_unit_test(adapters_of_families_are_merged_weights),
    };

    return emu_run_in_modes(tests, sizeof tests / sizeof *tests);
}
