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

// The adapter's numbers come first, and then the row's, so that they are the same for any number of rows.
static void record_first_row(struct side *s, const struct op_shape *c)
{
    static struct lora_weight w[2];
    struct lora_weight *own = &w[c->most_rows > 1];
    struct lora l = { 0 };

    *own = (struct lora_weight){ .scales = side_scales(s, 0), .n_ranks = 19, .n_adapters = LORA_ADAPTERS };
    l.targets[0].lora = side_lora(s, own, c->n_out, c->n_cols);
    l.in = side_tensor(s, c->n_cols, ROWS_STEP);
    l.targets[0].out = side_tensor(s, c->n_out, ROWS_STEP);
    op_lora(s->tape, l);
}

static void first_row(const struct op_shape *c, float *row)
{
    struct side s = { 0 };
    struct err err = { 0 };

    side_open(&s, gpu, c, record_first_row);
    struct buffer *out = &s.buffers[s.n_buffers - 1];
    memset(row, 0, c->n_out * sizeof *row);
    assert_ok(buffer_write(out, 0, row, c->n_out * sizeof *row, &err), &err);
    assert_ok(tape_play(s.tape, &s.step, &err), &err);
    assert_ok(buffer_read(out, 0, row, c->n_out * sizeof *row, &err), &err);
    side_close(&s);
}

static void a_row_has_the_same_bits_in_any_company(void **state)
{
    static const uint32_t widths[] = { 5, 333, 1024, 4100 }, most[] = { 7, 16, 30 };
    float alone[77], together[77];

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < 4; i++) {
        struct op_shape c = { .rows = 1, .most_rows = 1, .n_cols = widths[i], .n_out = 77 };
        first_row(&c, alone);
        assert_true(alone[0] != 0);
        for (uint32_t k = 0; k < 3; k++) {
            c.rows = c.most_rows = most[k];
            c.decode = 1;
            first_row(&c, together);
            assert_memory_equal(alone, together, sizeof alone);
        }
    }
}

static void compare_products(struct op_shape c)
{
    c.rows = c.most_rows = 1;
    c.limit = 5e-4;
    compare("matmul_adapted", &c, record_adapted_matmul);
    c.limit = 5e-3; // an int8 error in a gate far below 0 counts in full
    compare("gate_up_adapted", &c, record_adapted_gate_up);
}

// Sequences with every choice of adapters; ranks below, at and above what a thread takes at once; some with
// many more ranks than blocks.
static void products_of_one_row(void **state)
{
    static const uint32_t ranks[] = { 1, 15, 16, 33, 170 };

    (void)state;
    skip_without_gpu();
    for (uint32_t f = 0; f < N_FORMATS; f++)
        for (uint32_t i = 0; i < 5; i++) {
            struct op_shape c = { .format = formats[f],
                                  .n_cols = 512,
                                  .n_out = 151 + 300 * (i % 2),
                                  .bias = f % 2,
                                  .window = ranks[(f + i) % 5] + i };
            compare_products(c);
            c.other = QUANT_Q8_0;
            c.n_out = 24;
            compare_products(c);
            c.exact = true;
            compare_products(c);
        }
}

static void products_of_one_row_and_odd_widths(void **state)
{
    static const uint32_t widths[] = { 1, 7, 24, 40, 100, 104, 416, 1056, 36000 };
    static const enum quant plain[] = { QUANT_F32, QUANT_F16, QUANT_BF16 };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < 9; i++)
        for (uint32_t f = 0; f < 3; f++)
            compare_products(
                (struct op_shape){ .format = plain[f], .n_cols = widths[i], .n_out = 19, .window = 16 + i });
}

static void products_of_one_row_and_real_sizes(void **state)
{
    static const uint32_t sizes[][2] = { { 576, 9000 },   { 1536, 577 },   { 4096, 14336 },
                                         { 4096, 60000 }, { 14336, 4096 }, { 28672, 264 } };
    static const enum quant kinds[] = { QUANT_Q4_0, QUANT_BF16, QUANT_Q2_K, QUANT_Q6_K };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < 6; i++)
        for (uint32_t f = 0; f < 4; f++) {
            struct op_shape c = { .format = kinds[f],
                                  .rows = 1,
                                  .most_rows = 1,
                                  .n_cols = sizes[i][0],
                                  .n_out = sizes[i][1],
                                  .window = 16 + f % 3,
                                  .head_norm = i == 1, // rows that want logits
                                  .limit = 5e-4 };
            if (c.n_cols % quant_info(c.format)->block_elements == 0)
                compare("matmul_adapted", &c, record_adapted_matmul);
        }
}

static void heads_of_one_row(void **state)
{
    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < 24; i++) {
        struct op_shape c = { .format = i % 2 ? QUANT_BF16 : QUANT_Q4_0,
                              .other = i % 5 == 4 ? QUANT_Q6_K : 0,
                              .rows = 1,
                              .most_rows = 1,
                              .n_cols = i % 3 ? 512 : 4096,
                              .head_dim = i % 7 == 6 ? 48 : 64,
                              .n_heads = 6,
                              .n_kv_heads = 2,
                              .past = 20,
                              .bias = i % 4 == 1,
                              .head_norm = i % 6 == 5,
                              .pairs = i % 3 == 1 ? ROPE_HALVES : ROPE_ADJACENT,
                              .window = 1 + 7 * i,
                              .limit = 5e-4 };
        c.k_format = c.v_format = i % 8 == 7 ? KV_Q8_0 : KV_F16;
        compare("qkv_adapted", &c, record_adapted_qkv);
    }
}

// Two queues of one GPU, whose launches take SMs from each other.
static void products_of_two_queues_end(void **state)
{
    struct op_shape c = {
        .format = QUANT_Q4_0, .rows = 1, .most_rows = 1, .n_cols = 4096, .n_out = 4096, .window = 16
    };
    struct side sides[2] = { { 0 } };
    struct err err = { 0 };

    (void)state;
    skip_without_gpu();
    struct device *other = cuda_open(0, &cuda_table, &err);
    assert_non_null(other);
    side_open(&sides[0], gpu, &c, record_adapted_matmul);
    side_open(&sides[1], other, &c, record_adapted_matmul);
    for (uint32_t i = 0; i < 2000; i++)
        assert_ok(tape_play(sides[i % 2].tape, &sides[i % 2].step, &err), &err);
    for (uint32_t i = 0; i < 2; i++)
        assert_ok(sides[i].device->ops->wait(sides[i].device, &err), &err);
    side_close(&sides[0]);
    side_close(&sides[1]);
    device_close(other);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_every_shape),
        cmocka_unit_test(a_row_has_the_same_bits_in_any_company),
        cmocka_unit_test(products_of_one_row),
        cmocka_unit_test(products_of_one_row_and_odd_widths),
        cmocka_unit_test(products_of_one_row_and_real_sizes),
        cmocka_unit_test(heads_of_one_row),
        cmocka_unit_test(products_of_two_queues_end),
    };
    return cuda_tests(tests, sizeof tests / sizeof *tests, argc, argv);
}
