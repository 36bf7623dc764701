// test_cuda_recurrent.c - the CUDA kernels of operations that carry a state against their plain loops: one
// row to many, sequences that begin, go on and stand side by side.
#include "device/cuda_sides.h"
#include "ops/recurrent_sides.h"

static void states_and_outputs_of_every_shape(void **state)
{
    (void)state;
    skip_without_gpu();
    for (uint32_t o = 0; o < N_RECURRENT_OPS; o++)
        for (uint32_t i = 0; i < recurrent_ops[o].n; i++)
            for (uint32_t r = 0; r < N_ROW_COUNTS; r++) {
                struct op_shape c = recurrent_ops[o].shapes[i];
                c.rows = row_counts[r].rows;
                c.most_rows = row_counts[r].most;
                c.past = r % 2 ? 7 : 0;
                c.decode = c.rows > 4 ? c.rows / 4 : 0;
                c.limit = recurrent_ops[o].limit;
                compare(recurrent_ops[o].name, &c, recurrent_ops[o].record);
            }
}

// Rows that the operation packs for the product behind it.
static void steps_packed_for_the_product_behind(void **state)
{
    static const enum quant kinds[] = { QUANT_Q4_0, QUANT_Q4_K, QUANT_Q8_0, QUANT_BF16 };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (uint32_t r = 0; r < 4; r++) {
            struct op_shape c = { .rows = row_counts[r].rows,
                                  .most_rows = row_counts[r].most,
                                  .past = r % 2 ? 7 : 0,
                                  .n_heads = 16,
                                  .n_kv_heads = 8,
                                  .head_dim = 128,
                                  .n_out = 128,
                                  .n_cols = 96,
                                  .format = kinds[i],
                                  .window = SCAN_DELTA,
                                  .limit = 5e-4 };
            compare("delta_step, matmul", &c, record_delta_step_then_matmul);
        }
}

// Prompts, which go by blocks of rows: alone, behind decode rows, from any position, with states kept inside
// a block, and the same by rows.
static void prompts_by_blocks(void **state)
{
    static const struct {
        uint32_t rows, most, decode, past, kept;
    } steps[] = { { 40, 40, 0, 0, 1000 },   { 150, 160, 20, 100, 70 }, { 64, 64, 0, 64, 1000 },
                  { 290, 300, 0, 0, 1000 }, { 200, 256, 5, 7, 1000 },  { 300, 300, 0, 150, 33 } };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < N_RECURRENT_SCANS; i++)
        for (uint32_t k = 0; k < sizeof steps / sizeof *steps; k++) {
            struct op_shape c = recurrent_scans[i];
            c.rows = steps[k].rows;
            c.most_rows = steps[k].most;
            c.decode = steps[k].decode;
            c.past = steps[k].past;
            c.kept = steps[k].kept;
            c.limit = 1e-10;
            c.invariant = (i + k) % 8 == 7;
            compare("scan", &c, record_scan);
        }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_and_outputs_of_every_shape),
        cmocka_unit_test(steps_packed_for_the_product_behind),
        cmocka_unit_test(prompts_by_blocks),
    };
    return cuda_tests(tests, sizeof tests / sizeof *tests, argc, argv);
}
