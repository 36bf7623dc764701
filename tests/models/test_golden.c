// test_golden.c - every architecture against logits of the reference implementation, at every position, from both file formats.
//
// Exact: fp32 against fp32.
#include "models/golden.h"

static const char *variant_at(size_t i)
{
    return i < N_GOLDEN_VARIANTS ? golden_variants[i] : golden_mixtures[i - N_GOLDEN_VARIANTS];
}

static void plain_loops_give_the_reference_logits(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_GOLDEN_VARIANTS + N_GOLDEN_MIXTURES; i++) {
        check_golden(&(struct golden_run){ variant_at(i), "/model.gguf", "cpu:plain", 512, true });
        check_golden(&(struct golden_run){ variant_at(i), "", "cpu:plain", 512, true });
    }
}

static void fast_exact_kernels_give_the_reference_logits(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_GOLDEN_VARIANTS + N_GOLDEN_MIXTURES; i++) {
        check_golden(&(struct golden_run){ variant_at(i), "/model.gguf", "cpu", 512, true });
        check_golden(&(struct golden_run){ variant_at(i), "", "cpu", 7, true }); // in chunks
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
