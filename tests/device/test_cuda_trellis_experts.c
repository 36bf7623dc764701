// test_cuda_trellis_experts.c - the CUDA kernels of products with experts' EXL3 codes against the plain loop:
// all bits and codebooks, odd shapes, one row to many, models' sizes. Skipped where there is no GPU.
#pragma GCC diagnostic ignored "-Wunused-function" // of the recorders there, those of other operations
#include "device/cuda_sides.h"
#include "ops/trellis_experts_sides.h"

static const enum quant codebooks[] = { QUANT_EXL3, QUANT_EXL3_MCG, QUANT_EXL3_MUL1 };

static void compare_experts(uint32_t bits, uint32_t b, const uint32_t rows[2], const uint32_t size[2],
                            struct op_shape more)
{
    struct op_shape c = more;

    c.format = codebooks[b];
    c.other = bits % 2 ? codebooks[(b + 1) % 3] : 0;
    c.bits = bits;
    c.rows = rows[0];
    c.most_rows = rows[1];
    c.n_cols = size[0];
    c.n_out = size[1];
    // activations are rounded to halves; those of a shared expert of MUL1 to int8
    c.limit = c.exact ? 1e-10 : experts_shape.n_shared ? 2e-4 : 1e-6;
    compare("trellis_experts", &c, record_trellis_experts);
}

static void experts_of_all_bits(void **state)
{
    static const uint32_t rows[][2] = { { 1, 1 }, { 0, 1 }, { 5, 7 }, { 33, 64 }, { 3, 40 } };
    static const uint32_t sizes[][2] = { { 128, 128 }, { 256, 151 }, { 300, 384 }, { 1024, 260 } };

    (void)state;
    skip_without_gpu();
    for (uint32_t bits = 1; bits <= EXL3_MAX_BITS; bits++)
        for (uint32_t b = 0; b < 3; b++)
            for (uint32_t r = 0; r < sizeof rows / sizeof *rows; r++) {
                experts_shape =
                    (struct experts_shape){ .n_experts = r == 3 ? 3 : 9,
                                            .n_slots = 2,
                                            .one_for_all = bits % 4 == 3,
                                            .alone = b == 2,
                                            .activation = r == 2 ? ACTIVATION_GELU_TANH : ACTIVATION_SILU };
                compare_experts(bits, b, rows[r], sizes[(bits + b + r) % 4],
                                (struct op_shape){ .invariant = (bits + r) % 5 == 4 });
            }
}

static void exact_experts(void **state)
{
    static const uint32_t rows[][2] = { { 1, 1 }, { 7, 9 } }, sizes[][2] = { { 300, 151 }, { 256, 260 } };

    (void)state;
    skip_without_gpu();
    for (uint32_t bits = 1; bits <= EXL3_MAX_BITS; bits++)
        for (uint32_t b = 0; b < 3; b++) {
            experts_shape = (struct experts_shape){ .n_experts = 6, .n_slots = 3 };
            compare_experts(bits, b, rows[(bits + b) % 2], sizes[b % 2], (struct op_shape){ .exact = true });
        }
}

// Qwen3-30B-A3B's and GLM-4.7-Flash's sizes, the latter with a shared expert; many rows too.
static void experts_of_real_sizes(void **state)
{
    static const struct experts_shape mixtures[] = { { .n_experts = 128, .n_slots = 8 },
                                                     { .n_experts = 64, .n_slots = 4, .n_shared = 1536 } };
    static const uint32_t rows[][2] = { { 1, 1 }, { 8, 16 }, { 300, 512 } };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t r = 0; r < 3; r++) {
            experts_shape = mixtures[i];
            compare_experts(3 + i, (i + r) % 3, rows[r],
                            i ? (uint32_t[]){ 2048, 1536 } : (uint32_t[]){ 2048, 768 },
                            (struct op_shape){ 0 });
        }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_of_all_bits),
        cmocka_unit_test(exact_experts),
        cmocka_unit_test(experts_of_real_sizes),
    };
    return cuda_tests(tests, sizeof tests / sizeof *tests, argc, argv);
}
