// test_cuda_lora.c - the CUDA kernels of what adapters add to products against their plain loops.
#include "device/cuda_sides.h"
#include "ops/lora_sides.h"

static void sums_of_every_shape(void **state)
{
    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < N_LORA_CASES; i++) {
        struct op_shape c = lora_case(i);
        compare("lora", &c, record_lora);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_every_shape),
    };
    return cuda_tests(tests, sizeof tests / sizeof *tests, argc, argv);
}
