// test_lora_golden.c - LoRA adapters against logits of a reference whose weights are merged, at every
// position: from PEFT's folder and from GGUF, on models of both formats, and on the emulated GPU.
//
// Exact: fp32 against fp32. The files come from tools/golden/make_lora_golden.py.
#include "models/golden_lora.h"

static void plain_loops_give_the_logits_of_merged_weights(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_GOLDEN_LORAS; i++)
        for (uint32_t files = 0; files < 4; files++)
            check_golden_lora(&golden_loras[i], files,
                              &(struct golden_run){ .device = "cpu:plain", .n_batch = 512, .exact = true });
}

static void fast_kernels_give_the_logits_of_merged_weights(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_GOLDEN_LORAS; i++)
        for (uint32_t files = 0; files < 4; files++) {
            check_golden_lora(&golden_loras[i], files,
                              &(struct golden_run){ .device = "cpu", .n_batch = 7, .exact = true });
            check_golden_lora(&golden_loras[i], files,
                              &(struct golden_run){ .device = "cpu", .n_batch = 512 });
        }
}

// A and B are cut as the matrices are. The other models have one head of K and V.
static void ranks_add_up_to_the_logits_of_merged_weights(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_GOLDEN_LORAS; i++)
        for (uint32_t files = 0; files < 4 && strcmp(golden_loras[i].model, "granite") == 0; files++) {
            struct golden_run exact = { .device = "cpu", .n_batch = 7, .exact = true },
                              fast = { .device = "cpu", .n_batch = 512 };
            check_golden_lora_over(2, &golden_loras[i], files, &exact);
            check_golden_lora_over(2, &golden_loras[i], files, &fast);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_loops_give_the_logits_of_merged_weights),
        cmocka_unit_test(fast_kernels_give_the_logits_of_merged_weights),
        cmocka_unit_test(ranks_add_up_to_the_logits_of_merged_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
