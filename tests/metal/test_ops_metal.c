// test_ops_metal.c - every operation's Metal kernels against its plain loop, over formats, row counts and odd
// shapes, on the emulator.
//
// An operation is recorded alike on both devices; tape_diff gives both the same inputs and measures what lies
// between the results.
#include "emu_modes.h"
#include "device/fuse.h"
#include "ops/device_sides.h"

static const struct rows_case {
    uint32_t rows, most;
} row_cases[] = { { 1, 1 }, { 5, 16 }, { 13, 16 }, { 7, 70 }, { 67, 70 } };
enum { N_ROW_CASES = sizeof row_cases / sizeof *row_cases };

// Squared errors: fp32 sums in another order; and weights rounded to half.
#define FP32_LIMIT 1e-11
#define HALF_LIMIT 1e-6

static double product_limit(enum quant q, uint32_t most)
{
    return most > 1 && q != QUANT_F32 && q != QUANT_BF16 ? HALF_LIMIT : FP32_LIMIT;
}

static void products_of_every_format(void **state)
{
    (void)state;
    for (enum quant q = 0; q < N_WEIGHT_QUANTS; q++)
        for (uint32_t r = 0; r < N_ROW_CASES; r++) {
            struct op_shape c = { .format = q,
                                  .rows = row_cases[r].rows,
                                  .most_rows = row_cases[r].most,
                                  .n_cols = 256,
                                  .n_out = 75 };
            c.limit = product_limit(q, c.most_rows);
            c.bias = q % 2;
            sides_check(gpu, "matmul", &c, record_matmul);
            c.n_out = 21;
            c.limit *= 10; // an activation far below 0 is small, and the error of its argument is not
            sides_check(gpu, "gate_up", &c, record_gate_up);
        }
}

static void exact_products(void **state)
{
    (void)state;
    for (enum quant q = 0; q < N_WEIGHT_QUANTS; q++) {
        struct op_shape c = {
            .format = q, .rows = 3, .most_rows = 40, .n_cols = 512, .n_out = 37, .exact = true, .bias = true
        };
        c.limit = FP32_LIMIT;
        sides_check(gpu, "matmul", &c, record_matmul);
        c.rows = 40;
        sides_check(gpu, "gate_up", &c, record_gate_up);
    }
}

// Gate and up, or q and v, in formats whose runs lie differently.
static void unlike_formats(void **state)
{
    static const enum quant pairs[][2] = { { QUANT_Q4_K, QUANT_Q6_K },
                                           { QUANT_F16, QUANT_Q4_0 },
                                           { QUANT_Q5_1, QUANT_BF16 } };

    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t r = 0; r < N_ROW_CASES; r++) {
            struct op_shape c = { .format = pairs[i][0],
                                  .other = pairs[i][1],
                                  .rows = row_cases[r].rows,
                                  .most_rows = row_cases[r].most,
                                  .n_cols = 256,
                                  .n_out = 19,
                                  .limit = 10 * HALF_LIMIT };
            sides_check(gpu, "gate_up", &c, record_gate_up);
        }
}

// Plain formats of every width, most of them of no use to a vector; quantised rows that end within a tile.
static void products_of_odd_widths(void **state)
{
    static const uint32_t widths[] = { 1, 7, 24, 40, 100, 104 };

    (void)state;
    for (uint32_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (uint32_t r = 0; r < N_ROW_CASES; r++) {
            struct op_shape c = { .rows = row_cases[r].rows,
                                  .most_rows = row_cases[r].most,
                                  .n_cols = widths[i],
                                  .n_out = 19 + i };
            for (c.format = QUANT_F32; c.format <= QUANT_BF16; c.format++) {
                c.limit = product_limit(c.format, c.most_rows);
                sides_check(gpu, "matmul", &c, record_matmul);
                c.limit *= 10;
                sides_check(gpu, "gate_up", &c, record_gate_up);
            }
        }
    for (uint32_t r = 0; r < N_ROW_CASES; r++) {
        struct op_shape c = {
            .format = QUANT_Q4_0, .rows = row_cases[r].rows, .most_rows = row_cases[r].most, .n_cols = 1056
        };
        c.n_out = 33;
        c.limit = HALF_LIMIT;
        sides_check(gpu, "matmul", &c, record_matmul);
    }
}

static void a_head_of_many_outputs(void **state)
{
    static const enum quant formats[] = { QUANT_Q6_K, QUANT_Q8_0, QUANT_F16 };

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        struct op_shape c = {
            .format = formats[i], .rows = 1, .most_rows = 1, .n_cols = 256, .n_out = 32768 + 2 * i + i % 2
        };
        c.limit = FP32_LIMIT;
        sides_check(gpu, "matmul", &c, record_matmul);
    }
}

static const struct {
    enum kv_format k, v;
    double limit; // of what comes from a page
} page_cases[] = {
    { KV_F32, KV_F32, 1e-10 }, { KV_F16, KV_F16, 1e-7 }, { KV_BF16, KV_F16, 1e-5 }, { KV_F16, KV_BF16, 1e-5 }
};

static void qkv_in_every_shape(void **state)
{
    (void)state;
    for (uint32_t r = 0; r < N_ROW_CASES; r++)
        for (uint32_t i = 0; i < 4; i++) {
            struct op_shape c = { .format = QUANT_Q4_K,
                                  .other = i & 1 ? QUANT_Q6_K : 0,
                                  .rows = row_cases[r].rows,
                                  .most_rows = row_cases[r].most,
                                  .n_cols = 256,
                                  .head_dim = 32,
                                  .n_heads = 6,
                                  .n_kv_heads = 2,
                                  .past = 20,
                                  .k_format = page_cases[i].k,
                                  .v_format = page_cases[i].v,
                                  .pairs = i & 2 ? ROPE_ADJACENT : ROPE_HALVES,
                                  .bias = i & 1 };
            c.limit = fmax(page_cases[i].limit, product_limit(c.format, c.most_rows));
            sides_check(gpu, "qkv", &c, record_qkv);
            c.head_norm = true;
            sides_check(gpu, "qkv with head norms", &c, record_qkv);
            c.exact = true;
            c.limit = page_cases[i].limit;
            sides_check(gpu, "qkv", &c, record_qkv);
        }
}

static void qkv_into_q8_0_pages(void **state)
{
    (void)state;
    for (uint32_t r = 0; r < N_ROW_CASES; r++) {
        struct op_shape c = { .format = QUANT_F32,
                              .rows = row_cases[r].rows,
                              .most_rows = row_cases[r].most,
                              .n_cols = 64,
                              .head_dim = 64,
                              .n_heads = 4,
                              .n_kv_heads = 2,
                              .past = 20,
                              .k_format = KV_Q8_0,
                              .v_format = r % 2 ? KV_BF16 : KV_Q8_0,
                              .limit = 1e-5 };
        sides_check(gpu, "qkv", &c, record_qkv);
    }
}

static void rope_store_alone(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        struct op_shape c = { .rows = 9,
                              .most_rows = 16,
                              .head_dim = 40,
                              .n_heads = 5,
                              .n_kv_heads = 1,
                              .past = 11,
                              .k_format = page_cases[i].k,
                              .v_format = page_cases[i].v,
                              .pairs = i & 1 ? ROPE_ADJACENT : ROPE_HALVES,
                              .head_norm = i & 2,
                              .limit = page_cases[i].limit };
        sides_check(gpu, "rope_store", &c, record_rope_store);
    }
}

static void attention_in_every_shape(void **state)
{
    static const struct {
        uint32_t head_dim, n_heads, n_kv_heads;
        enum kv_format k, v;
    } heads[] = { { 64, 6, 2, KV_F16, KV_F16 },   { 128, 2, 1, KV_F32, KV_F32 },
                  { 64, 9, 1, KV_Q8_0, KV_BF16 }, { 32, 2, 2, KV_BF16, KV_Q8_0 },
                  { 18, 3, 1, KV_F32, KV_F16 },   { 256, 2, 1, KV_F16, KV_F16 },
                  { 40, 4, 2, KV_BF16, KV_F32 },  { 512, 5, 1, KV_BF16, KV_Q8_0 },
                  { 136, 2, 1, KV_F16, KV_F32 } };

    (void)state;
    for (uint32_t r = 0; r < N_ROW_CASES; r++)
        for (uint32_t h = 0; h < sizeof heads / sizeof *heads; h++) {
            uint32_t i = r + h;
            struct op_shape c = { .rows = row_cases[r].rows,
                                  .most_rows = row_cases[r].most,
                                  .head_dim = heads[h].head_dim,
                                  .n_heads = heads[h].n_heads,
                                  .n_kv_heads = heads[h].n_kv_heads,
                                  .n_cols = heads[h].head_dim,
                                  .past = i % 2 ? 570 : 0,
                                  .window = i % 3 == 1 ? 33 : 0,
                                  .bias = i % 4 < 2,
                                  .k_format = heads[h].k,
                                  .v_format = heads[h].v,
                                  .limit = 1e-10 };
            sides_check(gpu, "attend", &c, record_attend);
        }
}

// Of one row the product behind attention reads its parts, where there can be more than one: two launches
// instead of three. Few tokens make one part, 600 of them two or three.
static void products_of_attention_in_parts(void **state)
{
    static const struct {
        uint32_t head_dim, n_heads, n_kv_heads, n_out;
        enum quant format;
        bool parts;
    } cases[] = { { 64, 9, 3, 576, QUANT_Q4_0, true },   { 128, 4, 1, 75, QUANT_Q6_K, true },
                  { 32, 8, 8, 33, QUANT_Q4_K, true },    { 256, 5, 1, 64, QUANT_F16, true },
                  { 96, 3, 3, 21, QUANT_Q8_0, true },    { 40, 4, 2, 19, QUANT_F32, false },
                  { 64, 64, 64, 19, QUANT_Q5_0, false }, { 128, 33, 3, 19, QUANT_Q4_0, false },
                  { 512, 3, 1, 21, QUANT_Q4_0, true },   { 512, 32, 4, 19, QUANT_Q8_0, false } };

    (void)state;
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases * 4; i++) {
        uint32_t k = i / 4;
        struct op_shape c = { .rows = 1,
                              .most_rows = 1,
                              .head_dim = cases[k].head_dim,
                              .n_heads = cases[k].n_heads,
                              .n_kv_heads = cases[k].n_kv_heads,
                              .n_out = cases[k].n_out,
                              .format = cases[k].format,
                              .past = i % 2   ? 600
                                      : i % 4 ? 0
                                              : 290,
                              .window = i % 4 == 3 ? 550 : 0,
                              .bias = k % 2,
                              .k_format = k % 3 ? KV_F16 : KV_BF16,
                              .v_format = KV_F32,
                              .limit = FP32_LIMIT };
        struct sides s;
        bool parts = cases[k].parts && i % 4 != 2;
        c.n_cols = i % 4 == 2; // its result is kept
        sides_open(&s, gpu, &c, record_attend_out);
        assert_true(!fuse_packed(tape_command(s.fast.tape, 0), true) == !parts);
        assert_true(!fuse_packed(tape_command(s.fast.tape, 1), false) == !parts);
        assert_int_equal(tape_n_barriers(s.fast.tape), 1);
        sides_compare(&s, "attend and matmul", &c);
        sides_close(&s);
    }
}

// Recorders whose weights and first row do not depend on the number of rows.
static struct tensor drawn_alike(struct side *s, uint32_t n_cols)
{
    bench_seed(11);
    return side_tensor(s, n_cols, ROWS_STEP);
}
static void record_matmul_alike(struct side *s, const struct op_shape *c)
{
    const struct weight *w = side_weight(s, c->format, c->n_out, c->n_cols);
    struct tensor in = drawn_alike(s, c->n_cols), x = drawn_alike(s, c->n_out);
    op_matmul(s->tape, (struct matmul){ .out = x, .in = in, .w = w, .add = x });
}
static void record_gate_up_alike(struct side *s, const struct op_shape *c)
{
    struct gate_up m = { .gate = side_weight(s, c->format, c->n_out, c->n_cols),
                         .up = side_weight(s, c->other, c->n_out, c->n_cols),
                         .norm = side_vector(s, c->n_cols),
                         .activation = ACTIVATION_SILU,
                         .eps = 1e-5f };
    m.in = drawn_alike(s, c->n_cols);
    m.out = drawn_alike(s, c->n_out);
    op_gate_up(s->tape, m);
}
// qkv, attention and the product behind it.
static void record_layer_alike(struct side *s, const struct op_shape *c)
{
    uint32_t n_q = c->n_heads * c->head_dim, n_kv = c->n_kv_heads * c->head_dim;
    const struct weight *w = side_weight(s, c->format, c->n_out, n_q);
    struct qkv m = { .wq = side_weight(s, c->format, n_q, c->n_cols),
                     .wk = side_weight(s, c->other, n_kv, c->n_cols),
                     .wv = side_weight(s, c->format, n_kv, c->n_cols),
                     .norm = side_vector(s, c->n_cols),
                     .q_norm = c->head_norm ? side_vector(s, c->head_dim) : NULL,
                     .eps = 1e-6f };
    struct op_shape most = *c; // as many numbers in its pages for any number of rows
    struct tensor x;

    most.rows = 70;
    m.pages = side_pages(s, &most);
    m.angles = drawn_alike(s, c->head_dim);
    m.in = drawn_alike(s, c->n_cols);
    m.q = drawn_alike(s, n_q);
    x = drawn_alike(s, c->n_out);
    op_qkv(s->tape, m);
    struct attend a = { .out = tape_tensor(s->tape, n_q, ROWS_STEP),
                        .q = m.q,
                        .pages = m.pages,
                        .scale = 1 / sqrtf((float)c->head_dim) };
    op_attend(s->tape, a);
    op_matmul(s->tape, (struct matmul){ .out = x, .in = a.out, .w = w, .add = x });
}

// The first row's first numbers of the last buffer.
static void first_row(struct op_shape c, const struct rows_case *rows, record *recording, float out[16])
{
    struct side s = { 0 };
    struct err err = { 0 };

    c.rows = rows->rows;
    c.most_rows = rows->most;
    side_open(&s, gpu, &c, recording);
    assert_ok(tape_play(s.tape, &s.step, &err), &err);
    assert_ok(buffer_read(&s.buffers[s.n_buffers - 1], 0, out, 16 * 4, &err), &err);
    side_close(&s);
}

// Alone in a tape for one row, and among others in larger ones. Attention's past has two parts. The host
// never asks for fast math, with which the two kernels that add them up may divide unalike.
static void invariant_rows_have_the_same_bits_in_any_company(void **state)
{
    static record *const recorders[] = { record_matmul_alike, record_gate_up_alike, record_layer_alike };

    (void)state;
    for (enum quant q = 0; q < N_WEIGHT_QUANTS; q++)
        for (uint32_t way = 0; way < 3; way++) {
            struct op_shape c = { .format = q,
                                  .other = (q + 2) % N_WEIGHT_QUANTS,
                                  .invariant = true,
                                  .exact = q % 3 == 0,
                                  .n_cols = 512,
                                  .n_out = 17,
                                  .head_dim = 64,
                                  .n_heads = 4,
                                  .n_kv_heads = 2,
                                  .decode = 1,
                                  .past = 560,
                                  .head_norm = q % 2,
                                  .k_format = KV_F16,
                                  .v_format = KV_F16 };
            float alone[16], among[16];
            if (way == 2 && (q % 4 != 1 || emu_get("fast")))
                continue;
            first_row(c, &row_cases[0], recorders[way], alone);
            for (uint32_t r = 1; r < N_ROW_CASES; r += 3) {
                first_row(c, &row_cases[r], recorders[way], among);
                assert_memory_equal(alone, among, sizeof alone);
            }
        }
}

static void small_operations(void **state)
{
    (void)state;
    for (uint32_t r = 0; r < N_ROW_CASES; r++) {
        struct op_shape c = {
            .rows = row_cases[r].rows, .most_rows = row_cases[r].most, .n_cols = 322, .limit = 1e-10
        };
        sides_check(gpu, "small", &c, record_small);
    }
    for (enum quant q = 0; q < N_WEIGHT_QUANTS;
         q++) { // bit for bit what the headers decode, but for the scale
        struct op_shape c = { .format = q, .rows = 9, .most_rows = 16, .n_cols = 512, .limit = 1e-14 };
        sides_check(gpu, "embed", &c, record_embed);
        c.n_cols = 37;
        if (q <= QUANT_BF16)
            sides_check(gpu, "embed", &c, record_embed);
    }
}

static void sampling_as_defined(void **state)
{
    const struct sample_params ways[] = {
        { .repeat_penalty = 1, .top_p = 1 },
        { .repeat_penalty = 1.3f,
          .penalty_window = 64,
          .top_p = 1,
          .presence_penalty = 0.2f,
          .frequency_penalty = 0.1f },
        { .repeat_penalty = 1, .top_p = 1, .temperature = 1 },
        { .repeat_penalty = 1, .top_p = 0.9f, .temperature = 0.7f },
        { .repeat_penalty = 1, .top_p = 1, .top_k = 40, .temperature = 1.3f },
        { .repeat_penalty = 1, .top_p = 1, .top_k = 1500, .temperature = 2 },
        { .repeat_penalty = 1.1f,
          .penalty_window = 20,
          .top_p = 0.95f,
          .top_k = 60,
          .min_p = 0.05f,
          .temperature = 0.8f },
        { .repeat_penalty = 1, .top_p = 1, .min_p = 0.2f, .temperature = 1 },
        { .repeat_penalty = 1, .top_p = 1, .n_biases = 7 },
        { .repeat_penalty = 1, .top_p = 0.8f, .temperature = 1, .flags = SAMPLE_MASKED },
        { .repeat_penalty = 1.2f, .penalty_window = 9, .top_p = 1, .n_biases = 20, .flags = SAMPLE_MASKED },
        { .repeat_penalty = 1, .top_p = 1, .flags = SAMPLE_SKIP },
    };

    (void)state;
    for (uint32_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (uint32_t n = 0; n < 2; n++) {
            struct op_shape c = { .rows = SLOTS,
                                  .most_rows = 16,
                                  .past = 100,
                                  .n_cols = n ? 2053 : 50,
                                  .sampling = ways[i],
                                  .limit = 0 };
            sides_check(gpu, "sample", &c, record_sample);
        }
}

static void gpu_play(struct side *s)
{
    struct err err = { 0 };
    assert_ok(tape_play(s->tape, &s->step, &err), &err);
    assert_ok(gpu->ops->wait(gpu, &err), &err);
}

static void put(const struct buffer *b, uint64_t index, float v)
{
    struct err err = { 0 };
    assert_ok(buffer_write((struct buffer *)b, index * 4, &v, 4, &err), &err);
}

// Each row of the last buffer: all finite, or none.
static void expect_finite(struct side *s, const struct op_shape *c, uint32_t n_cols, const bool *bad)
{
    float *out = mem_alloc_array((size_t)c->most_rows * n_cols, sizeof *out);
    struct err err = { 0 };

    assert_ok(buffer_read(&s->buffers[s->n_buffers - 1], 0, out, (uint64_t)c->most_rows * n_cols * 4, &err),
              &err);
    for (uint32_t i = 0; i < c->rows * n_cols; i++) {
        uint32_t bits;
        memcpy(&bits, &out[i], 4);
        if (((bits & 0x7f800000) == 0x7f800000) != bad[i / n_cols])
            fail_msg("%u rows of %u: row %u, column %u is %g", c->rows, c->most_rows, i / n_cols, i % n_cols,
                     (double)out[i]);
    }
    mem_free(out);
}

static void a_bad_number_stays_in_its_row(void **state)
{
    static const float bad[] = { NAN, INFINITY };

    (void)state;
    for (uint32_t i = 0; i < N_ROW_CASES * 2 * 2; i++) {
        struct op_shape c = { .format = i & 1 ? QUANT_Q4_K : QUANT_F32, .n_cols = 256, .n_out = 40 };
        c.rows = row_cases[i / 4].rows;
        c.most_rows = row_cases[i / 4].most;
        c.exact = c.rows == 7;
        for (uint32_t gated = 0; gated < 2; gated++) {
            struct side s = { 0 };
            bool rows[128] = { 0 };
            side_open(&s, gpu, &c, gated ? record_gate_up : record_matmul);
            put(&s.buffers[0], (uint64_t)(c.rows - 1) * c.n_cols + 100, bad[i / 2 % 2]);
            rows[c.rows - 1] = true;
            gpu_play(&s);
            expect_finite(&s, &c, c.n_out, rows);
            side_close(&s);
        }
    }
}

// A bad query spoils its row, a bad page its sequence; neighbours in the same tile go on.
static void bad_numbers_stay_in_their_sequence(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_ROW_CASES * 2; i++) {
        struct op_shape c = { .rows = row_cases[i / 2].rows,
                              .most_rows = row_cases[i / 2].most,
                              .head_dim = 64,
                              .n_heads = 2,
                              .n_kv_heads = 1,
                              .n_cols = 64,
                              .past = 40,
                              .k_format = KV_F32,
                              .v_format = KV_F32 };
        struct side s = { 0 };
        bool rows[128] = { 0 };
        side_open(&s, gpu, &c, record_attend);
        for (uint32_t head = 0; head < 2; head++)
            // the last row, whose sequence is slot 0
            put(&s.buffers[0], (uint64_t)(c.rows - 1) * 128 + head * 64 + 7, NAN);
        for (uint32_t d = 0; d < 64 && c.rows > 4;
             d++) // position 0 of slot 2, which rows n / 2 and n / 2 + 1 belong to
            put(i % 2 ? s.pages.v : s.pages.k,
                (uint64_t)((2 * MAX_PAGES * 37 + 5) % (SLOTS * MAX_PAGES)) * 1024 + (i % 2 ? d : d * 16),
                NAN);
        gpu_play(&s);
        rows[c.rows - 1] = true;
        rows[c.rows / 2] |= c.rows > 4;
        rows[c.rows / 2 + 1] |= c.rows > 4;
        expect_finite(&s, &c, 128, rows);
        side_close(&s);
    }
}

static void logits_that_are_none_are_reported(void **state)
{
    static const float bad[] = { NAN, INFINITY };
    struct sample_params ways[] = { { .repeat_penalty = 1, .top_p = 1 },
                                    { .repeat_penalty = 1, .top_p = 0.9f, .temperature = 1 } };
    struct err err = { 0 };

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        struct op_shape c = { .rows = SLOTS, .most_rows = SLOTS, .n_cols = 1000, .sampling = ways[i % 2] };
        struct side s = { 0 };
        uint32_t ids[SLOTS];
        side_open(&s, gpu, &c, record_sample);
        put(&s.buffers[0], 999, bad[i / 2]);
        for (uint32_t t = 0; t < c.n_cols; t++) { // row 1 allows one token, row 2 none
            put(&s.buffers[0], c.n_cols + t, t == 30 ? -5 : -INFINITY);
            put(&s.buffers[0], 2 * c.n_cols + t, -INFINITY);
        }
        gpu_play(&s);
        assert_ok(buffer_read(&s.buffers[s.n_buffers - 1], RESULTS_AT * 4, ids, sizeof ids, &err), &err);
        assert_int_equal(ids[0], STEP_TOKEN_INVALID);
        assert_int_equal(ids[1], 30);
        assert_int_equal(ids[2], STEP_TOKEN_INVALID);
        assert_true(ids[3] < c.n_cols);
        side_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_operations),
        cmocka_unit_test(products_of_every_format),
        cmocka_unit_test(exact_products),
        cmocka_unit_test(unlike_formats),
        cmocka_unit_test(products_of_odd_widths),
        cmocka_unit_test(a_head_of_many_outputs),
        cmocka_unit_test(qkv_in_every_shape),
        cmocka_unit_test(qkv_into_q8_0_pages),
        cmocka_unit_test(rope_store_alone),
        cmocka_unit_test(attention_in_every_shape),
        cmocka_unit_test(products_of_attention_in_parts),
        cmocka_unit_test(invariant_rows_have_the_same_bits_in_any_company),
        cmocka_unit_test(sampling_as_defined),
        cmocka_unit_test(a_bad_number_stays_in_its_row),
        cmocka_unit_test(bad_numbers_stay_in_their_sequence),
        cmocka_unit_test(logits_that_are_none_are_reported),
    };

    return emu_run_in_modes(tests, sizeof tests / sizeof *tests);
}
