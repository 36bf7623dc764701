// test_trellis_product.c - the product with EXL3 codes: the plain loop against the matrix with its transforms
// multiplied in, in double; faster kernels against the plain loop; and a row's bits in any step.
#pragma GCC diagnostic ignored "-Wunused-function" // of the recorders there, those of other operations
#include "ops/trellis_sides.h"

struct played {      // of one case on one device
    float *in, *out; // [rows, n_cols], [rows, n_out]
    struct exl3 m;
    unsigned char *codes;
    float *bias, *add;
};

static const enum quant codebooks[] = { QUANT_EXL3, QUANT_EXL3_MCG, QUANT_EXL3_MUL1 };

static float *numbers_of(const struct side *s, uint32_t buffer)
{
    float *copy = mem_alloc(s->buffers[buffer].bytes);

    memcpy(copy, s->buffers[buffer].host, s->buffers[buffer].bytes);
    return copy;
}

static struct played play(const struct op_shape *c, const struct cpu_options *options)
{
    struct cpu_options o = *options;
    struct err err = { 0 };
    struct side s = { 0 };
    struct played p;

    o.table = &cpu_table;
    o.n_threads = o.n_threads ? o.n_threads : 1;
    struct device *d = cpu_open(&o, &err);
    if (!d)
        fail_msg("cpu_open: %s", err.message);
    side_open(&s, d, c, record_trellis);
    p.in = numbers_of(&s, 0);
    p.add = c->bias ? numbers_of(&s, 1) : NULL;
    p.bias = NULL;
    if (c->bias) {
        p.bias = mem_alloc(c->n_out * sizeof(float));
        memcpy(p.bias, s.data[1], c->n_out * sizeof(float));
    }
    uint64_t bytes = s.weights[0].bytes;
    p.codes = mem_alloc(bytes);
    memcpy(p.codes, s.data[0], bytes);
    p.m = exl3_at(p.codes, exl3_padded(c->n_cols), exl3_padded(c->n_out), c->bits,
                  (enum exl3_codebook)(c->format - QUANT_EXL3));
    assert_ok(tape_play(s.tape, &s.step, &err), &err);
    p.out = numbers_of(&s, s.n_buffers - 1);
    side_close(&s);
    device_close(d);
    return p;
}

static void played_free(struct played *p)
{
    mem_free(p->in);
    mem_free(p->out);
    mem_free(p->codes);
    mem_free(p->bias);
    mem_free(p->add);
}

// By exl3_product_block, which is tested by itself (test_quant).
static float *expected(const struct op_shape *c, const struct played *p)
{
    static float block[EXL3_BLOCK][EXL3_BLOCK];
    double *sums = mem_alloc((size_t)c->rows * c->n_out * sizeof *sums);
    float *out = mem_alloc((size_t)c->rows * c->n_out * sizeof *out);

    memset(sums, 0, (size_t)c->rows * c->n_out * sizeof *sums);
    for (uint32_t i = 0; i < p->m.n_in / EXL3_BLOCK; i++)
        for (uint32_t o = 0; o < p->m.n_out / EXL3_BLOCK; o++) {
            exl3_product_block(&p->m, i, o, block);
            for (uint32_t r = 0; r < c->rows; r++)
                for (uint32_t n = 0; n < EXL3_BLOCK && o * EXL3_BLOCK + n < c->n_out; n++)
                    for (uint32_t k = 0; k < EXL3_BLOCK && i * EXL3_BLOCK + k < c->n_cols; k++)
                        sums[r * c->n_out + o * EXL3_BLOCK + n] +=
                            (double)p->in[r * c->n_cols + i * EXL3_BLOCK + k] * (double)block[n][k];
        }
    for (uint32_t i = 0; i < c->rows * c->n_out; i++)
        out[i] = (float)(sums[i] + (p->bias ? (double)p->bias[i % c->n_out] + (double)p->add[i] : 0));
    mem_free(sums);
    return out;
}

static void the_plain_loop_is_the_matrix_multiplied_in(void **state)
{
    static const uint32_t sizes[][2] = { { 128, 128 }, { 256, 151 }, { 300, 384 }, { 40, 70 } };

    (void)state;
    for (uint32_t bits = 1; bits <= EXL3_MAX_BITS; bits++)
        for (uint32_t b = 0; b < 3; b++) {
            struct op_shape c = { .format = codebooks[b],
                                  .bits = bits,
                                  .rows = 1 + bits % 3,
                                  .most_rows = 5,
                                  .n_cols = sizes[(bits + b) % 4][0],
                                  .n_out = sizes[(bits + b) % 4][1],
                                  .bias = bits % 2 == 1 };
            struct played p = play(&c, &(struct cpu_options){ .plain = true });
            float *want = expected(&c, &p);
            double error = bench_error(want, p.out, (size_t)c.rows * c.n_out);
            if (!(error <= 1e-11))
                fail_msg("%u bits, %s [%u, %u]: error %.2e", bits, quant_info(c.format)->name, c.n_out,
                         c.n_cols, error);
            mem_free(want);
            played_free(&p);
        }
}

static void every_kernel_is_close_to_the_plain_loop(void **state)
{
    uint32_t sets[8], n_sets = bench_features(sets);

    (void)state;
    for (uint32_t i = 0; i < n_sets; i++)
        for (uint32_t v = 0; v < 24; v++) {
            struct op_shape c = { .format = codebooks[v % 3],
                                  .bits = 1 + v / 3,
                                  .rows = v % 2   ? 1
                                          : v % 4 ? 7
                                                  : 300,
                                  .most_rows = 300,
                                  .n_cols = v % 5 ? 384 : 300,
                                  .n_out = v % 7 ? 256 : 151,
                                  .bias = v % 2 == 1 };
            struct played want = play(&c, &(struct cpu_options){ .plain = true }),
                          got = play(&c, &(struct cpu_options){ .features = sets[i], .n_threads = 2 });
            double error = bench_error(want.out, got.out, (size_t)c.rows * c.n_out);
            if (!(error <= 1e-11))
                fail_msg("features %x, %u bits, %s, %u rows: error %.2e", sets[i], c.bits,
                         quant_info(c.format)->name, c.rows, error);
            played_free(&want);
            played_free(&got);
        }
}

// Alone, and as the first of many.
static void a_row_has_the_same_bits_in_any_step(void **state)
{
    uint32_t sets[8], n_sets = bench_features(sets);

    (void)state;
    for (uint32_t i = 0; i < n_sets; i++)
        for (uint32_t b = 0; b < 3; b++) {
            struct op_shape one = { .format = codebooks[b],
                                    .bits = 3,
                                    .rows = 1,
                                    .most_rows = 300,
                                    .n_cols = 384,
                                    .n_out = 256 },
                            many = one;
            many.rows = 270;
            struct played first = play(&one, &(struct cpu_options){ .features = sets[i] }),
                          all = play(&many, &(struct cpu_options){ .features = sets[i], .n_threads = 2 });
            assert_memory_equal(first.out, all.out, one.n_out * sizeof(float));
            played_free(&first);
            played_free(&all);
        }
}

// The numbers of all three results, one behind the other.
static float *play_three(const struct op_shape *c, const struct cpu_options *options, record *recording)
{
    struct cpu_options o = *options;
    struct err err = { 0 };
    struct side s = { 0 };
    uint32_t n = 0;

    o.table = &cpu_table;
    o.n_threads = 2;
    struct device *d = cpu_open(&o, &err);
    if (!d)
        fail_msg("cpu_open: %s", err.message);
    side_open(&s, d, c, recording);
    assert_ok(tape_play(s.tape, &s.step, &err), &err);
    float *all = mem_alloc(3 * (size_t)c->most_rows * c->n_out * sizeof *all);
    for (uint32_t i = 0; i < 3; i++) { // a buffer each behind the input's
        const struct buffer *b = &s.buffers[1 + i];
        memcpy(all + n, b->host, b->bytes);
        n += (uint32_t)(b->bytes / sizeof *all);
    }
    side_close(&s);
    device_close(d);
    return all;
}

static void joined_matrices_have_the_same_bits(void **state)
{
    uint32_t sets[8], n_sets = bench_features(sets);

    (void)state;
    for (uint32_t i = 0; i <= n_sets; i++)
        for (uint32_t b = 0; b < 3; b++) {
            struct op_shape c = { .format = codebooks[b],
                                  .bits = 2 + b,
                                  .rows = b == 1 ? 1 : 5,
                                  .most_rows = 5,
                                  .n_cols = 300,
                                  .n_out = 260 };
            struct cpu_options o = { .plain = i == n_sets, .features = i < n_sets ? sets[i] : 0 };
            float *joined = play_three(&c, &o, record_trellis_joined),
                  *apart = play_three(&c, &o, record_trellis_apart);
            assert_memory_equal(joined, apart, c.most_rows * (260 + 131 + 40) * sizeof *joined);
            mem_free(joined);
            mem_free(apart);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plain_loop_is_the_matrix_multiplied_in),
        cmocka_unit_test(every_kernel_is_close_to_the_plain_loop),
        cmocka_unit_test(a_row_has_the_same_bits_in_any_step),
        cmocka_unit_test(joined_matrices_have_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
