// test_small_emulated.c - RMSNorm, activations, angles, select and temper on the emulator: a part of
// test_cuda's small_operations, whose other kernels have PTX.
#include "device/cuda_sides.h"
#include "run/cuda_run.h"

static void small_operations_without_ptx(void **state)
{
    (void)state;
    skip_without_gpu();
    for (uint32_t r = 0; r < N_ROW_COUNTS; r++) {
        struct op_shape c = {
            .rows = row_counts[r].rows, .most_rows = row_counts[r].most, .n_cols = 322, .limit = 1e-10
        };
        cuda_run_settings.schedule = (int)(r % 3);
        cuda_run_settings.seed = r;
        compare("small", &c, record_small);
    }
    cuda_run_settings.schedule = CUDA_RUN_FORWARD;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_operations_without_ptx),
    };
    return cuda_tests(tests, sizeof tests / sizeof *tests, argc, argv);
}
