// test_trellis_metal.c - the Metal kernels of products with EXL3 codes, of one matrix and of experts, against
// the plain loops: all bits and codebooks, odd shapes, one row to many; and a row's bits against the company
// it is in.
#pragma GCC diagnostic ignored "-Wunused-function" // of the recorders there, those of other operations
#include "emu_modes.h"
#include "ops/trellis_experts_sides.h"

static const enum quant codebooks[] = { QUANT_EXL3, QUANT_EXL3_MCG, QUANT_EXL3_MUL1 };
static const uint32_t sizes[][2] = { { 128, 128 }, { 256, 151 }, { 300, 384 }, { 40, 70 } };
static const struct trellis_rows_case {
    uint32_t rows, most;
} row_cases[] = { { 1, 1 }, { 5, 7 }, { 0, 4 }, { 64, 64 }, { 19, 40 } };
enum { N_ROW_CASES = sizeof row_cases / sizeof *row_cases };

// fp32 sums in another order.
static struct op_shape shape_of(uint32_t bits, uint32_t codebook, uint32_t r)
{
    const uint32_t *size = sizes[(bits + codebook + r) % 4];

    return (struct op_shape){ .format = codebooks[codebook],
                              .other = bits % 2 ? codebooks[(codebook + 1) % 3] : 0,
                              .bits = bits,
                              .rows = row_cases[r].rows,
                              .most_rows = row_cases[r].most,
                              .n_cols = size[0],
                              .n_out = size[1],
                              .exact = r == 1,
                              .bias = (bits + r) % 2 == 1,
                              .limit = 1e-10 };
}

static void products_of_all_bits(void **state)
{
    (void)state;
    for (uint32_t bits = 1; bits <= EXL3_MAX_BITS; bits++)
        for (uint32_t b = 0; b < 3; b++)
            for (uint32_t r = 0; r < N_ROW_CASES; r++) {
                struct op_shape c = shape_of(bits, b, r);
                if (r < 2 || (bits + b + r) % 3 == 0) // the plain loop's time
                    sides_check(gpu, "trellis", &c, record_trellis);
            }
}

static void three_matrices_at_once(void **state)
{
    (void)state;
    for (uint32_t b = 0; b < 3; b++)
        for (uint32_t r = 0; r < N_ROW_CASES; r++) {
            struct op_shape c = shape_of(2 + b, b, r);
            sides_check(gpu, "trellis", &c, record_trellis_joined);
        }
}

static void experts_of_all_bits(void **state)
{
    (void)state;
    for (uint32_t bits = 1; bits <= EXL3_MAX_BITS; bits++)
        for (uint32_t b = 0; b < 3; b++)
            for (uint32_t r = 0; r < N_ROW_CASES; r++) {
                struct op_shape c = shape_of(bits, b, r);
                experts_shape =
                    (struct experts_shape){ .n_experts = 5,
                                            .n_slots = 2,
                                            .n_shared = (bits + r) % 3 == 1 ? 130 : 0,
                                            .one_for_all = bits % 4 == 3,
                                            .alone = b == 2,
                                            .activation = r == 1 ? ACTIVATION_GELU_TANH : ACTIVATION_SILU };
                if ((bits + b + r) % 3 == 0)
                    sides_check(gpu, "trellis_experts", &c, record_trellis_experts);
            }
}

// What row 0 becomes in a step of so many rows.
static void play_rows(const struct op_shape *shape, uint32_t rows, record *recording, float *row)
{
    struct op_shape c = *shape;
    struct side s = { 0 };
    struct err err = { 0 };

    c.rows = rows;
    side_open(&s, gpu, &c, recording);
    assert_ok(tape_play(s.tape, &s.step, &err), &err);
    struct buffer *out = &s.buffers[s.n_buffers - 1];
    assert_ok(buffer_read(out, 0, row, out->bytes / c.most_rows, &err), &err);
    side_close(&s);
}

static void a_row_has_the_same_bits_in_any_company(void **state)
{
    float alone[512], among[512];

    (void)state;
    experts_shape = (struct experts_shape){ .n_experts = 5, .n_slots = 2 };
    for (uint32_t b = 0; b < 3; b++)
        for (uint32_t experts = 0; experts < 2; experts++) {
            struct op_shape c = shape_of(3, b, 4);
            uint32_t n = experts ? c.n_cols : c.n_out;
            play_rows(&c, 1, experts ? record_trellis_experts : record_trellis, alone);
            play_rows(&c, 33, experts ? record_trellis_experts : record_trellis, among);
            assert_memory_equal(alone, among, n * sizeof *alone);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_all_bits),
        cmocka_unit_test(three_matrices_at_once),
        cmocka_unit_test(experts_of_all_bits),
        cmocka_unit_test(a_row_has_the_same_bits_in_any_company),
    };
    return emu_run_in_modes(tests, sizeof tests / sizeof *tests);
}
