// test_trellis_experts.c - experts of EXL3 codes: the plain loop against matrices with their transforms
// multiplied in, in double; faster kernels against the plain loop; a row's bits in any step.
#pragma GCC diagnostic ignored "-Wunused-function" // of the recorders there, those of other operations
#include "ops/trellis_experts_sides.h"

enum { N_EXPERTS = 5, N_SLOTS = 2 };

static const enum quant codebooks[] = { QUANT_EXL3, QUANT_EXL3_MCG, QUANT_EXL3_MUL1 };
static const uint32_t sizes[][2] = { { 128, 128 }, { 256, 151 }, { 300, 384 }, { 40, 70 } };

struct played_experts {
    struct side s;
    struct device *device;
};

static const float *values_of(const struct played_experts *p, uint32_t buffer)
{
    return p->s.buffers[buffer].host;
}
static const float *result_of(const struct played_experts *p)
{
    return values_of(p, p->s.n_buffers - 1);
}

static void play(struct played_experts *p, const struct op_shape *c, const struct cpu_options *options)
{
    struct cpu_options o = *options;
    struct err err = { 0 };

    *p = (struct played_experts){ 0 };
    o.table = &cpu_table;
    o.n_threads = o.n_threads ? o.n_threads : 1;
    p->device = cpu_open(&o, &err);
    if (!p->device)
        fail_msg("cpu_open: %s", err.message);
    side_open(&p->s, p->device, c, record_trellis_experts);
    assert_ok(tape_play(p->s.tape, &p->s.step, &err), &err);
}

static void played_close(struct played_experts *p)
{
    side_close(&p->s);
    device_close(p->device);
}

// y[o] = the product of a row with matrix `index` of a stack, by exl3_product_block, which is tested by
// itself (test_quant).
static void product(const struct played_experts *p, uint32_t stack, uint32_t index, const uint32_t shape[2],
                    const double *x, double *y)
{
    static float block[EXL3_BLOCK][EXL3_BLOCK];
    const struct weight *w = &p->s.weights[stack];
    uint32_t n_in = exl3_padded(shape[1]), n_out = exl3_padded(shape[0]);
    uint64_t bytes = w->bytes / (w->n_rows / shape[0]);
    struct exl3 m = exl3_at((const unsigned char *)p->s.data[stack] + index * bytes, n_in, n_out,
                            exl3_bits(bytes, n_in, n_out), (enum exl3_codebook)(w->format - QUANT_EXL3));

    memset(y, 0, shape[0] * sizeof *y);
    for (uint32_t i = 0; i < n_in; i += EXL3_BLOCK)
        for (uint32_t o = 0; o < n_out; o += EXL3_BLOCK) {
            exl3_product_block(&m, i / EXL3_BLOCK, o / EXL3_BLOCK, block);
            for (uint32_t n = o; n < o + EXL3_BLOCK && n < shape[0]; n++)
                for (uint32_t k = i; k < i + EXL3_BLOCK && k < shape[1]; k++)
                    y[n] += x[k] * (double)block[n - o][k - i];
        }
}

// down(act(gate(x), up(x))) of three stacks from `stack` on, added to sum.
static void add_expert(const struct played_experts *p, const struct op_shape *c, uint32_t stack,
                       uint32_t n_hidden, uint32_t index, const float *row, double weight, double *sum)
{
    double x[512], gate[512], up[512];

    for (uint32_t i = 0; i < c->n_cols; i++)
        x[i] = (double)row[i];
    product(p, stack + TRELLIS_GATE, index, (uint32_t[]){ n_hidden, c->n_cols }, x, gate);
    product(p, stack + TRELLIS_UP, index, (uint32_t[]){ n_hidden, c->n_cols }, x, up);
    for (uint32_t i = 0; i < n_hidden; i++)
        gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
    product(p, stack + TRELLIS_DOWN, index, (uint32_t[]){ c->n_cols, n_hidden }, gate, x);
    for (uint32_t i = 0; i < c->n_cols; i++)
        sum[i] += weight * x[i];
}

static void check_row(const struct played_experts *p, const struct op_shape *c, uint32_t r, float *want)
{
    const float *in = values_of(p, 0) + r * c->n_cols, *ids = values_of(p, 1) + r * N_SLOTS,
                *weights = values_of(p, 2) + r * (N_SLOTS + 1);
    double sum[512] = { 0 };

    for (uint32_t j = 0; j < N_SLOTS; j++)
        add_expert(p, c, 0, c->n_out, (uint32_t)ids[j], in, (double)weights[j], sum);
    if (experts_shape.n_shared)
        add_expert(p, c, TRELLIS_STACKS, experts_shape.n_shared, 0, in, (double)weights[N_SLOTS], sum);
    for (uint32_t i = 0; i < c->n_cols; i++)
        want[i] = (float)(sum[i] + (experts_shape.alone ? 0 : (double)values_of(p, 3)[r * c->n_cols + i]));
}

static struct op_shape shape_of(uint32_t bits, uint32_t codebook, uint32_t size)
{
    return (struct op_shape){ .format = codebooks[codebook],
                              .other = bits % 2 ? codebooks[(codebook + 1) % 3] : 0,
                              .bits = bits,
                              .n_cols = sizes[size % 4][0],
                              .n_out = sizes[size % 4][1] };
}

static struct experts_shape mixture_of(uint32_t i)
{
    return (struct experts_shape){ .n_experts = N_EXPERTS,
                                   .n_slots = N_SLOTS,
                                   .n_shared = i % 3 == 1 ? 130 : 0,
                                   .one_for_all = i % 4 == 3,
                                   .alone = i % 5 == 2 };
}

static void the_plain_loop_is_the_experts_defined(void **state)
{
    (void)state;
    for (uint32_t bits = 1; bits <= EXL3_MAX_BITS; bits++)
        for (uint32_t b = 0; b < 3; b++) {
            struct op_shape c = shape_of(bits, b, bits + b);
            struct played_experts p;
            float want[512];
            c.rows = 1 + bits % 3;
            c.most_rows = 5;
            experts_shape = mixture_of(bits + b);
            play(&p, &c, &(struct cpu_options){ .plain = true });
            for (uint32_t r = 0; r < c.rows; r++) {
                check_row(&p, &c, r, want);
                double error = bench_error(want, result_of(&p) + r * c.n_cols, c.n_cols);
                if (!(error <= 1e-10))
                    fail_msg("%u bits, %s [%u, %u], row %u: error %.2e", bits, quant_info(c.format)->name,
                             c.n_out, c.n_cols, r, error);
            }
            played_close(&p);
        }
}

static void every_kernel_is_close_to_the_plain_loop(void **state)
{
    uint32_t sets[8], n_sets = bench_features(sets);

    (void)state;
    for (uint32_t i = 0; i < n_sets; i++)
        for (uint32_t v = 0; v < 24; v++) {
            struct op_shape c = shape_of(1 + v / 3, v % 3, v);
            struct played_experts want, got;
            c.rows = v % 2 ? 1 : v % 4 ? 7 : 300;
            c.most_rows = 300;
            experts_shape = mixture_of(v);
            play(&want, &c, &(struct cpu_options){ .plain = true });
            play(&got, &c, &(struct cpu_options){ .features = sets[i], .n_threads = 2 });
            double error = bench_error(result_of(&want), result_of(&got), (size_t)c.rows * c.n_cols);
            if (!(error <= 1e-10))
                fail_msg("features %x, %u bits, %s, %u rows: error %.2e", sets[i], c.bits,
                         quant_info(c.format)->name, c.rows, error);
            played_close(&want);
            played_close(&got);
        }
}

// Alone, and as the first of many.
static void a_row_has_the_same_bits_in_any_step(void **state)
{
    uint32_t sets[8], n_sets = bench_features(sets);

    (void)state;
    for (uint32_t i = 0; i < n_sets; i++)
        for (uint32_t b = 0; b < 3; b++) {
            struct op_shape one = shape_of(3, b, 2), many;
            struct played_experts first, all;
            one.rows = 1;
            one.most_rows = 300;
            many = one;
            many.rows = 270;
            experts_shape = mixture_of(b);
            play(&first, &one, &(struct cpu_options){ .features = sets[i] });
            play(&all, &many, &(struct cpu_options){ .features = sets[i], .n_threads = 2 });
            assert_memory_equal(result_of(&first), result_of(&all), one.n_cols * sizeof(float));
            played_close(&first);
            played_close(&all);
        }
}

static void no_row_is_no_work(void **state)
{
    struct op_shape c = shape_of(3, 1, 0);
    struct played_experts p;

    (void)state;
    c.most_rows = 4;
    experts_shape = mixture_of(0);
    play(&p, &c, &(struct cpu_options){ .n_threads = 2 });
    played_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plain_loop_is_the_experts_defined),
        cmocka_unit_test(every_kernel_is_close_to_the_plain_loop),
        cmocka_unit_test(a_row_has_the_same_bits_in_any_step),
        cmocka_unit_test(no_row_is_no_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
