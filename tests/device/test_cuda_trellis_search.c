// test_cuda_trellis_search.c - the CUDA kernels that code matrices as EXL3 against the plain loop: all bits
// and codebooks, to the bit. Skipped where there is no GPU.
#pragma GCC diagnostic ignored "-Wunused-function" // of the recorders there
#include "device/cuda_sides.h"
#include "ops/trellis_search_sides.h"

static struct device *plain_cpu(void)
{
    struct err err = { 0 };
    struct device *d = cpu_open(&(struct cpu_options){ .table = &cpu_table }, &err);

    assert_ok(d != NULL, &err);
    return d;
}

static void all_bits_and_codebooks(void **state)
{
    static uint64_t n_shapes;
    struct device *cpu;

    (void)state;
    skip_without_gpu();
    cpu = plain_cpu();
    for (uint32_t bits = 1; bits <= EXL3_MAX_BITS; bits++)
        for (uint32_t c = 0; c < 3; c++)
            if (n_shapes++ % every == 0)
                search_compare(cpu, gpu,
                               &(struct search_shape){ 48, 32, bits, (enum exl3_codebook)c, 1, 2, 1 });
    device_close(cpu);
}

// More tiles than multiprocessors, and long sums.
static void a_wide_and_a_high_matrix(void **state)
{
    struct device *cpu;

    (void)state;
    skip_without_gpu();
    cpu = plain_cpu();
    search_compare(cpu, gpu, &(struct search_shape){ 256, 2816, 3, EXL3_MUL1, 14, 16, 1 });
    search_compare(cpu, gpu, &(struct search_shape){ 128, 128, 4, EXL3_MUL1, 0, 8, 5 });
    search_compare(cpu, gpu, &(struct search_shape){ 4096, 128, 2, EXL3_MUL1, 0, 1, 1 });
    device_close(cpu);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_bits_and_codebooks),
        cmocka_unit_test(a_wide_and_a_high_matrix),
    };
    return cuda_tests(tests, sizeof tests / sizeof *tests, argc, argv);
}
