// test_matmul.c - the product's kernels against the plain loop: all weight formats, ragged shapes, and the
// promise that a row's bits depend on nothing but the row.
#include "ops/matmul/matmul.h"
#include <math.h>
#include "gemm/cpu/panel.h"
#include "op_harness.h"

struct matmul_shape {
    enum quant format;
    uint32_t n_out, n_cols, n_rows;
    bool exact, bias, add, uneven;
    bool largest; // integers of weights and activations are the largest and smallest that there are
};

struct result {
    float *out; // [n_rows, n_out]
    size_t n;
};

// From block to block of 32 columns far apart, and nothing: what a scale for 256 columns must cope with.
static float size_of_32(uint32_t block)
{
    return block % 11 == 3 ? 0 : ldexpf(1, -(int)(block * 5 % 8));
}

static void largest_block(enum quant q, unsigned char *block)
{
    static const int bytes[] = { 0, 255, 0x80, 0x7f };
    const struct panel_fields f = panel_shapes[q].fields;
    const int byte = bytes[bench_random() >> 8 & 3];

    bench_block(q, block);
    memset(block + f.q, byte, 4 * f.n_q);
    memset(block + f.high, byte, 4 * f.n_high);
}

// One sign, the other, or both in turn: by columns or pairs of them.
static float largest_activation(uint32_t r, uint32_t c)
{
    return r % 4 == 0 || (r % 4 == 2 && c % 2) || (r % 4 == 3 && c / 2 % 2) ? 1 : -1;
}

static struct result product(const struct cpu_options *options, const struct matmul_shape *s,
                             const uint32_t *order)
{
    struct bench b;
    float *in, *add = NULL, *out;
    struct matmul m = { 0 };
    struct tensor none = { 0 };

    bench_open(&b, options,
               (struct tape_limits){ .max_rows = s->n_rows, .max_outputs = 1, .exact = s->exact });
    bench_seed(s->format * 1000 + s->n_cols);
    m.w = bench_weight_of(&b, s->format, s->n_out, s->n_cols, s->largest ? largest_block : bench_block);
    m.bias = s->bias ? bench_weight(&b, QUANT_F32, 1, s->n_out) : NULL;
    m.in = bench_tensor(&b, s->n_cols, ROWS_STEP, &in);
    m.add = s->add ? bench_tensor(&b, s->n_out, ROWS_STEP, &add) : none;
    m.out = bench_tensor(&b, s->n_out, ROWS_STEP, &out);
    for (uint32_t r = 0; r < s->n_rows; r++) { // row order[r]'s own numbers, wherever it stands
        bench_seed(100 + (order ? order[r] : r));
        for (uint32_t c = 0; c < s->n_cols; c++)
            in[r * s->n_cols + c] =
                s->largest ? largest_activation(r, c) : bench_normal() * (s->uneven ? size_of_32(c / 32) : 1);
        for (uint32_t c = 0; c < s->n_out && s->add; c++)
            add[r * s->n_out + c] = bench_normal();
    }
    op_matmul(b.tape, m);
    bench_seal(&b);
    bench_step(&b)->n_rows = s->n_rows;
    bench_play(&b);
    struct result result = { mem_alloc((size_t)s->n_rows * s->n_out * 4), (size_t)s->n_rows * s->n_out };
    memcpy(result.out, out, result.n * 4);
    bench_close(&b);
    return result;
}

static void compare_with_plain(const struct matmul_shape *s, const struct cpu_options *fast, double limit)
{
    struct result want = product(&(struct cpu_options){ .plain = true }, s, NULL),
                  got = product(fast, s, NULL);
    double error = bench_error(want.out, got.out, want.n);

    if (!(error <= limit))
        fail_msg("%s [%u, %u], %u rows, features %x, exact %d: error %.2e, at most %.0e",
                 quant_info(s->format)->name, s->n_out, s->n_cols, s->n_rows, fast->features, s->exact, error,
                 limit);
    mem_free(want.out);
    mem_free(got.out);
}

static void every_format_is_close_to_the_plain_loop(void **state)
{
    uint32_t sets[8], n_sets = bench_features(sets);

    (void)state;
    for (uint32_t i = 0; i < n_sets; i++)
        for (enum quant q = 0; q < N_WEIGHT_QUANTS; q++)
            for (uint32_t v = 0; v < 8; v++) {
                struct matmul_shape s = { .format = q,
                                          .n_out = v & 1 ? 77 : 32,
                                          .n_cols = 512,
                                          .n_rows = v & 2 ? 7 : 1,
                                          .exact = v & 4 };
                double limit = s.exact || q == QUANT_F32 || q == QUANT_F16 ? 1e-9 : 5e-4;
                compare_with_plain(&s, &(struct cpu_options){ .features = sets[i], .n_threads = 2 }, limit);
            }
}

static void ragged_columns_bias_and_residual(void **state)
{
    static const uint32_t cols[] = { 1, 7, 33, 63, 95 }, rows[] = { 1, 6, 13, 29 };
    uint32_t sets[8], n_sets = bench_features(sets);

    (void)state;
    for (uint32_t i = 0; i < n_sets; i++)
        for (uint32_t v = 0; v < 20; v++) {
            struct matmul_shape s = {
                .n_out = 33 + v, .n_cols = cols[v % 5], .n_rows = rows[v % 4], .bias = v & 1, .add = v & 2
            };
            for (s.format = QUANT_F32; s.format <= QUANT_BF16; s.format++)
                compare_with_plain(&s, &(struct cpu_options){ .features = sets[i] },
                                   s.format == QUANT_BF16 ? 5e-4 : 1e-9);
            s.n_cols = 32 * (1 + v % 5);
            for (s.format = QUANT_Q4_0; s.format <= QUANT_Q8_0; s.format++)
                // few columns average less
                compare_with_plain(&s, &(struct cpu_options){ .features = sets[i] }, 1e-3);
        }
}

static void expect_rows(const struct result *all, const struct result *some, const uint32_t *order,
                        uint32_t n_out)
{
    for (size_t r = 0; r < some->n / n_out; r++)
        if (memcmp(some->out + r * n_out, all->out + (order ? order[r] : r) * n_out, n_out * 4) != 0)
            fail_msg("row %zu of %zu has other bits", r, some->n / n_out);
}

static void check_bits(const struct matmul_shape *shape, const struct cpu_options *options)
{
    struct matmul_shape s = *shape;
    struct result all = product(options, &s, NULL);
    uint32_t order[64];

    for (s.n_rows = 1; s.n_rows <= 64; s.n_rows += 1 + s.n_rows / 14) {
        for (uint32_t r = 0; r < s.n_rows; r++)
            order[r] = (r * 37 + s.n_rows) % 64;
        struct cpu_options o = *options;
        o.n_threads = 1 + s.n_rows % 3;
        struct result first = product(&o, &s, NULL), mixed = product(&o, &s, order);
        expect_rows(&all, &first, NULL, s.n_out);
        expect_rows(&all, &mixed, order, s.n_out);
        mem_free(first.out);
        mem_free(mixed.out);
    }
    mem_free(all.out);
}

static void a_row_has_the_same_bits_in_any_batch(void **state)
{
    uint32_t sets[8], n_sets = bench_features(sets);

    (void)state;
    for (uint32_t i = 0; i < n_sets; i++)
        for (enum quant q = 0; q < N_WEIGHT_QUANTS; q++) {
            struct matmul_shape s = { .format = q, .n_out = 40, .n_cols = 256, .n_rows = 64, .add = true };
            check_bits(&s, &(struct cpu_options){ .features = sets[i], .n_threads = 1 });
            s.exact = true;
            if (q % 4 == 0)
                check_bits(&s, &(struct cpu_options){ .features = sets[i], .n_threads = 1 });
        }
}

// Sums of integers are exact, and every tile scales them in the same order.
static void every_processor_gives_the_same_bits(void **state)
{
    static const uint32_t rows[] = { 1, 2, 3, 4, 5, 6, 7, 19, 48, 65 };
    uint32_t sets[8], n_sets = bench_features(sets) - 1; // the last are the plain loops

    (void)state;
    for (uint32_t i = 1; i < n_sets; i++)
        for (enum quant q = QUANT_Q4_0; q < N_WEIGHT_QUANTS; q++)
            for (uint32_t r = 0; r < sizeof rows / sizeof *rows; r++) {
                struct matmul_shape s = {
                    .format = q, .n_out = 40, .n_cols = 512, .n_rows = rows[r], .uneven = rows[r] % 2
                };
                struct result best = product(&(struct cpu_options){ .features = sets[0] }, &s, NULL);
                struct result other = product(&(struct cpu_options){ .features = sets[i] }, &s, NULL);
                expect_rows(&best, &other, NULL, s.n_out);
                mem_free(best.out);
                mem_free(other.out);
            }
}

static void weights_left_in_the_file_give_the_same_bits(void **state)
{
    // Few rows, for which some formats have tiles of their own; some of a matrix's tiles; a panel that is
    // expanded. The last panel of 70 has six rows. Rows of fp32 are no multiple of a line.
    static const uint32_t rows[] = { 1, 2, 3, 4, 5, 9, 17, 41 };
    uint32_t sets[8], n_sets = bench_features(sets) - 1;

    (void)state;
    for (uint32_t i = 0; i < n_sets; i++)
        for (enum quant q = 0; q < N_WEIGHT_QUANTS; q++)
            for (uint32_t r = 0; r < sizeof rows / sizeof *rows; r++) {
                struct matmul_shape s = { .format = q,
                                          .n_out = 70,
                                          .n_cols = q == QUANT_F32 ? 523 : 512,
                                          .n_rows = rows[r],
                                          .uneven = r % 2 };
                struct cpu_options o = { .features = sets[i], .no_repack = true, .n_threads = 2 };
                struct result packed = product(&(struct cpu_options){ .features = sets[i] }, &s, NULL);
                struct result file = product(&o, &s, NULL);
                expect_rows(&packed, &file, NULL, s.n_out);
                mem_free(packed.out);
                mem_free(file.out);
            }
}

static void columns_of_unlike_sizes_are_close_to_the_plain_loop(void **state)
{
    uint32_t sets[8], n_sets = bench_features(sets);

    (void)state;
    for (uint32_t i = 0; i < n_sets; i++)
        for (enum quant q = QUANT_Q4_0; q < N_WEIGHT_QUANTS; q++)
            for (uint32_t rows = 1; rows < 40; rows += 29) { // a panel is expanded for many rows
                struct matmul_shape s = {
                    .format = q, .n_out = 40, .n_cols = 2048, .n_rows = rows, .uneven = true
                };
                compare_with_plain(&s, &(struct cpu_options){ .features = sets[i] }, 5e-4);
            }
}

// Activations are exact in int8: what is off was a sum that did not fit.
static void the_largest_integers_fit_their_sums(void **state)
{
    uint32_t sets[8], n_sets = bench_features(sets);

    (void)state;
    for (uint32_t i = 0; i < n_sets; i++)
        for (enum quant q = QUANT_Q4_0; q < N_WEIGHT_QUANTS; q++)
            for (uint32_t rows = 4; rows <= 20; rows += 16) {
                struct matmul_shape s = {
                    .format = q, .n_out = 40, .n_cols = 512, .n_rows = rows, .largest = true
                };
                compare_with_plain(&s, &(struct cpu_options){ .features = sets[i] }, 1e-9);
            }
}

// Blocks of rows that do not fit the cache at once are walked one after the other.
static void many_rows_are_split_into_blocks(void **state)
{
    struct matmul_shape s = { .format = QUANT_Q8_0, .n_out = 64, .n_cols = 4096, .n_rows = 300 };

    (void)state;
    compare_with_plain(&s, &(struct cpu_options){ .n_threads = 2 }, 5e-4);
}

static void a_bad_number_stays_in_its_row(void **state)
{
    static const float bad[] = { NAN, INFINITY };
    uint32_t sets[8], n_sets = bench_features(sets);

    (void)state;
    for (uint32_t i = 0; i < n_sets * 2 * 2; i++) {
        struct bench b;
        float *in, *out;
        bench_open(&b, &(struct cpu_options){ .features = sets[i / 4] },
                   (struct tape_limits){ .max_rows = 3, .max_outputs = 1 });
        struct matmul m = { .w = bench_weight(&b, i & 1 ? QUANT_Q4_K : QUANT_BF16, 64, 256) };
        m.in = bench_tensor(&b, 256, ROWS_STEP, &in);
        m.out = bench_tensor(&b, 64, ROWS_STEP, &out);
        in[256 + 100] = bad[i / 2 % 2];
        op_matmul(b.tape, m);
        bench_seal(&b);
        bench_step(&b)->n_rows = 3;
        bench_play(&b);
        for (uint32_t n = 0; n < 64; n++) {
            assert_true(isfinite(out[n]) && isfinite(out[128 + n]));
            assert_false(isfinite(out[64 + n]));
        }
        bench_close(&b);
    }
}

// The blocks that all tests of operations draw: about as large as trained weights, and their mean near 0.
// Else int8 activations, which are off by 1e-4, seem worse than they are: a common sign adds up to sums that
// cancel.
static void random_blocks_are_like_trained_weights(void **state)
{
    (void)state;
    for (uint32_t q = 0; q < N_WEIGHT_QUANTS; q++) {
        const struct quant_info *info = quant_info(q);
        unsigned char block[512];
        float numbers[256];
        double sum = 0, squares = 0, n = 0;
        if (info->block_elements == 1)
            continue;
        bench_seed(3);
        for (uint32_t k = 0; k < 1000; k++) {
            bench_block(q, block);
            quant_read(&(struct quant_rows){ q, block, info->block_elements }, 0, numbers,
                       info->block_elements);
            for (uint32_t i = 0; i < info->block_elements; i++, n++) {
                sum += numbers[i];
                squares += (double)numbers[i] * numbers[i];
            }
        }
        double rms = sqrt(squares / n);
        if (!(rms > 0.01 && rms < 0.1 && fabs(sum / n) < 0.2 * rms))
            fail_msg("%s: blocks of rms %.3g, mean %.3g", info->name, rms, sum / n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_blocks_are_like_trained_weights),
        cmocka_unit_test(every_format_is_close_to_the_plain_loop),
        cmocka_unit_test(ragged_columns_bias_and_residual),
        cmocka_unit_test(a_row_has_the_same_bits_in_any_batch),
        cmocka_unit_test(weights_left_in_the_file_give_the_same_bits),
        cmocka_unit_test(every_processor_gives_the_same_bits),
        cmocka_unit_test(the_largest_integers_fit_their_sums),
        cmocka_unit_test(many_rows_are_split_into_blocks),
        cmocka_unit_test(a_bad_number_stays_in_its_row),
        cmocka_unit_test(columns_of_unlike_sizes_are_close_to_the_plain_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
