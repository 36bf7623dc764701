// test_golden.c - every architecture against logits of the reference implementation, at every position, from both file formats.
//
// Exact: fp32 against fp32.
#include "models/golden.h"

static void plain_loops_give_the_reference_logits(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_GOLDEN_VARIANTS; i++) {
        check_golden(&(struct golden_run){ golden_variants[i], "/model.gguf", "cpu:plain", 512, true });
        check_golden(&(struct golden_run){ golden_variants[i], "", "cpu:plain", 512, true });
    }
}

static void fast_exact_kernels_give_the_reference_logits(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_GOLDEN_VARIANTS; i++) {
        check_golden(&(struct golden_run){ golden_variants[i], "/model.gguf", "cpu", 512, true });
        check_golden(&(struct golden_run){ golden_variants[i], "", "cpu", 7, true }); // in chunks
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_loops_give_the_reference_logits),
        cmocka_unit_test(fast_exact_kernels_give_the_reference_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
