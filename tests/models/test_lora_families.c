// test_lora_families.c - adapters on every architecture are merged weights, to the last matrix.
#include "models/lora_families.h"

static void adapters_are_merged_weights(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_GOLDEN_VARIANTS; i++)
        check_family(golden_variants[i], "cpu");
    for (size_t i = 0; i < N_GOLDEN_HYBRIDS; i++)
        check_family(golden_hybrids[i], "cpu");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(adapters_are_merged_weights) };

    return cmocka_run_group_tests(tests, lora_families_begin, lora_families_end);
}
