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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_and_outputs_of_every_shape),
    };
    return cuda_tests(tests, sizeof tests / sizeof *tests, argc, argv);
}
