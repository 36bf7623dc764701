// test_cuda_trellis.c - the CUDA kernels of products with EXL3 codes against the plain loop: all bits and
// codebooks, odd shapes, one row to many. Skipped where there is no GPU.
#pragma GCC diagnostic ignored "-Wunused-function" // of the recorders there, those of other operations
#include "device/cuda_sides.h"
#include "ops/trellis_sides.h"

static const enum quant codebooks[] = { QUANT_EXL3, QUANT_EXL3_MCG, QUANT_EXL3_MUL1 };

// Activations of MUL1 are rounded to int8, of the others to halves.
static double limit_of(const struct op_shape *c)
{
    return c->exact ? 1e-10 : c->format == QUANT_EXL3_MUL1 ? 2e-4 : 1e-6;
}

static void few_rows_of_all_bits(void **state)
{
    static const uint32_t rows[][2] = { { 1, 1 }, { 1, 8 }, { 5, 7 }, { 13, 16 }, { 33, 64 }, { 3, 40 } };
    static const uint32_t sizes[][2] = { { 128, 128 }, { 256, 151 }, { 300, 384 }, { 1024, 260 } };

    (void)state;
    skip_without_gpu();
    for (uint32_t bits = 1; bits <= EXL3_MAX_BITS; bits++)
        for (uint32_t b = 0; b < 3; b++)
            for (uint32_t r = 0; r < sizeof rows / sizeof *rows; r++) {
                const uint32_t *size = sizes[(bits + b + r) % 4];
                struct op_shape c = { .format = codebooks[b],
                                      .bits = bits,
                                      .rows = rows[r][0],
                                      .most_rows = rows[r][1],
                                      .n_cols = size[0],
                                      .n_out = size[1],
                                      .bias = r % 2 == 1 };
                c.limit = limit_of(&c);
                compare("trellis", &c, record_trellis);
            }
}

// A model's sizes: many splits, several stages of each warp, rows longer than one block may take.
static void few_rows_of_real_sizes(void **state)
{
    static const uint32_t sizes[][2] = { { 4096, 4096 }, { 4096, 14336 }, { 14336, 4096 }, { 2880, 5120 } };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t b = 0; b < 3; b++)
            for (uint32_t r = 0; r < 3; r++) {
                struct op_shape c = { .format = codebooks[b],
                                      .bits = 2 + (i + b + r) % 4,
                                      .rows = r == 0 ? 1 : 9 * r,
                                      .most_rows = 16 * r + 1,
                                      .n_cols = sizes[i][0],
                                      .n_out = sizes[i][1],
                                      .bias = r % 2 == 1 };
                c.limit = limit_of(&c);
                compare("trellis", &c, record_trellis);
            }
}

// More outputs than blocks at once: each block multiplies several, of odd parts of the columns or of none.
static void one_row_of_many_outputs(void **state)
{
    static const uint32_t n_cols[] = { 1400, 128, 300 };

    (void)state;
    skip_without_gpu();
    for (uint32_t bits = 1; bits <= EXL3_MAX_BITS; bits++) {
        struct op_shape c = { .format = QUANT_EXL3_MUL1,
                              .bits = bits,
                              .rows = 1,
                              .most_rows = 1,
                              .n_cols = n_cols[bits % 3],
                              .n_out = 68000 + bits };
        c.limit = limit_of(&c);
        compare("trellis", &c, record_trellis);
    }
}

// Through the matrix in BF16, or exactly, in F32, by parts of it where it is large.
static void many_rows_and_exact_ones(void **state)
{
    static const uint32_t sizes[][2] = { { 128, 128 }, { 300, 151 }, { 1024, 260 }, { 4096, 6000 } };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t bits = 1; bits <= EXL3_MAX_BITS; bits += i == 3 ? 3 : 1)
            for (uint32_t exact = 0; exact < 2; exact++) {
                struct op_shape c = { .format = codebooks[(bits + i) % 3],
                                      .bits = bits,
                                      .rows = exact ? 3 : 100,
                                      .most_rows = exact ? 9 : 130,
                                      .n_cols = sizes[i][0],
                                      .n_out = sizes[i][1],
                                      .exact = exact,
                                      .bias = bits % 2 == 1,
                                      .limit = exact ? 1e-10 : 2e-5 };
                compare("trellis", &c, record_trellis);
            }
}

static void compare_joined(uint32_t codebook, const uint32_t rows[2], uint32_t bits, bool exact, double limit)
{
    struct op_shape c = { .format = codebooks[codebook],
                          .bits = bits,
                          .rows = rows[0],
                          .most_rows = rows[1],
                          .n_cols = 700,
                          .n_out = 300,
                          .exact = exact };

    c.limit = limit > 0 ? limit : limit_of(&c);
    compare("trellis", &c, record_trellis_joined);
}

static void three_matrices_at_once_of_few_rows(void **state)
{
    static const uint32_t rows[][2] = { { 1, 1 }, { 1, 8 }, { 11, 16 }, { 40, 64 } };

    (void)state;
    skip_without_gpu();
    for (uint32_t b = 0; b < 3; b++)
        for (uint32_t r = 0; r < sizeof rows / sizeof *rows; r++)
            compare_joined(b, rows[r], 1 + (b + 2 * r) % 8, false, 0);
}

static void three_matrices_at_once_of_many_rows(void **state)
{
    static const uint32_t rows[][2] = { { 100, 130 }, { 3, 9 } };

    (void)state;
    skip_without_gpu();
    for (uint32_t b = 0; b < 3; b++)
        for (uint32_t exact = 0; exact < 2; exact++)
            compare_joined(b, rows[exact], 3 + b, exact, exact ? 0 : 2e-5);
}

// The weight first: it is the same for any number of rows.
static void record_weight_and_rows(struct side *s, const struct op_shape *c)
{
    const struct weight *w = side_trellis(s, c, c->n_out);
    struct tensor in = side_tensor(s, c->n_cols, ROWS_STEP);

    op_matmul(s->tape, (struct matmul){ .out = side_tensor(s, c->n_out, ROWS_STEP), .in = in, .w = w });
}

// Of a step's last row, which is the same in all.
static float *play_last_row(const struct op_shape *c)
{
    float *row = mem_alloc(c->n_cols * sizeof *row), *out = mem_alloc(c->n_out * sizeof *out);
    uint64_t bytes = c->n_cols * sizeof *row, out_bytes = c->n_out * sizeof *out;
    struct side s = { 0 };
    struct err err = { 0 };

    side_open(&s, gpu, c, record_weight_and_rows);
    bench_seed(3);
    for (uint32_t i = 0; i < c->n_cols; i++)
        row[i] = bench_normal();
    assert_ok(buffer_write(&s.buffers[0], (c->rows - 1) * bytes, row, bytes, &err), &err);
    assert_ok(tape_play(s.tape, &s.step, &err), &err);
    assert_ok(buffer_read(&s.buffers[1], (c->rows - 1) * out_bytes, out, out_bytes, &err), &err);
    side_close(&s);
    mem_free(row);
    return out;
}

static void a_row_has_the_same_bits_in_any_step(void **state)
{
    static const uint32_t rows[][2] = { { 1, 1 }, { 1, 8 }, { 7, 8 }, { 12, 16 }, { 70, 100 } };

    (void)state;
    skip_without_gpu();
    for (uint32_t b = 0; b < 3; b++) {
        float *results[5];
        for (uint32_t r = 0; r < 5; r++) {
            struct op_shape c = { .format = codebooks[b],
                                  .bits = 3 + b,
                                  .rows = rows[r][0],
                                  .most_rows = rows[r][1],
                                  .n_cols = 1400,
                                  .n_out = 300,
                                  .invariant = true };
            results[r] = play_last_row(&c);
            assert_memory_equal(results[0], results[r], c.n_out * sizeof(float));
        }
        for (uint32_t r = 0; r < 5; r++)
            mem_free(results[r]);
    }
}

static void gates_in_parts(void **state)
{
    (void)state;
    skip_without_gpu();
    for (uint32_t b = 0; b < 3; b++)
        for (uint32_t r = 0; r < N_ROW_COUNTS; r++) {
            struct op_shape c = { .format = codebooks[b],
                                  .bits = 3,
                                  .rows = row_counts[r].rows,
                                  .most_rows = row_counts[r].most,
                                  .n_cols = 512,
                                  .n_out = 200,
                                  .limit = 5e-3 };
            compare("gate_up", &c, record_trellis_gate_up);
        }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_rows_of_all_bits),
        cmocka_unit_test(few_rows_of_real_sizes),
        cmocka_unit_test(one_row_of_many_outputs),
        cmocka_unit_test(many_rows_and_exact_ones),
        cmocka_unit_test(three_matrices_at_once_of_few_rows),
        cmocka_unit_test(three_matrices_at_once_of_many_rows),
        cmocka_unit_test(a_row_has_the_same_bits_in_any_step),
        cmocka_unit_test(gates_in_parts),
    };
    return cuda_tests(tests, sizeof tests / sizeof *tests, argc, argv);
}
