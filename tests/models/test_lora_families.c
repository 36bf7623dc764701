// test_lora_families.c - adapters on every architecture are merged weights, to the last matrix.
#include "models/arch.h"
#include "models/lora_families.h"

static void adapters_are_merged_weights(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_GOLDEN_VARIANTS; i++)
        check_family(golden_variants[i], "cpu");
    for (size_t i = 0; i < N_GOLDEN_MIXTURES; i++)
        check_family(golden_mixtures[i], "cpu");
    for (size_t i = 0; i < N_GOLDEN_HYBRIDS; i++)
        check_family(golden_hybrids[i], "cpu");
}

static void adapters_of_gguf_go_with_checkpoints(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_GOLDEN_VARIANTS; i++)
        check_family_in("", golden_variants[i], "cpu");
    for (size_t i = 0; i < N_GOLDEN_MIXTURES; i++)
        check_family_in("", golden_mixtures[i], "cpu");
    for (size_t i = 0; i < N_GOLDEN_HYBRIDS; i++)
        if (!model_one_of(lora_own_format, str_from(golden_hybrids[i])))
            check_family_in("", golden_hybrids[i], "cpu");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(adapters_are_merged_weights),
                                        cmocka_unit_test(adapters_of_gguf_go_with_checkpoints) };

    return cmocka_run_group_tests(tests, lora_families_begin, lora_families_end);
}
