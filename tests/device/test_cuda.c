// test_cuda.c - every operation's CUDA kernels against its plain loop, over formats, row counts and odd
// shapes; those of experts are in test_cuda_experts.c.
#include "device/cuda_sides.h"

static void products_of_every_format(void **state)
{
    (void)state;
    skip_without_gpu();
    for (uint32_t f = 0; f < N_FORMATS; f++)
        for (uint32_t r = 0; r < N_ROW_COUNTS; r++) {
            struct op_shape c = { .format = formats[f],
                                  .rows = row_counts[r].rows,
                                  .most_rows = row_counts[r].most,
                                  .n_cols = 512,
                                  .n_out = 151,
                                  .limit = 5e-4 };
            c.bias = f % 2;
            compare("matmul", &c, record_matmul);
            c.n_out = 24;
            c.limit = 5e-3; // an int8 error in a gate far below 0 counts in full
            compare("gate_up", &c, record_gate_up);
        }
}

static void products_of_normed_rows(void **state)
{
    (void)state;
    skip_without_gpu();
    for (uint32_t f = 0; f < N_FORMATS; f++)
        for (uint32_t r = 0; r < N_ROW_COUNTS; r++) {
            struct op_shape c = { .format = formats[f],
                                  .other = (f + r) % 3 == 0   ? 0
                                           : (f + r) % 3 == 1 ? formats[f]
                                                              : formats[(f + r) % N_FORMATS],
                                  .rows = row_counts[r].rows,
                                  .most_rows = row_counts[r].most,
                                  .n_cols = row_counts[r].most <= 16 ? 2048 : 768,
                                  .n_out = f % 2 ? 38 : 154,
                                  .bias = r % 2,
                                  .exact = r % 5 == 1,
                                  .invariant = r % 5 == 2,
                                  .limit = r % 5 == 1 ? 1e-11 : 5e-4 };
            compare("matmul_normed", &c, record_matmul_normed);
        }
}

static void exact_products(void **state)
{
    (void)state;
    skip_without_gpu();
    for (uint32_t f = 0; f < N_FORMATS; f++) {
        struct op_shape c = { .format = formats[f],
                              .rows = 3,
                              .most_rows = 40,
                              .n_cols = 512,
                              .n_out = 37,
                              .exact = true,
                              .bias = true,
                              .limit = 1e-11 };
        compare("matmul", &c, record_matmul);
        compare("gate_up", &c, record_gate_up);
    }
}

static void products_of_odd_widths(void **state)
{
    static const uint32_t widths[] = { 1, 7, 24, 40, 100, 104, 416, 1056 };
    static const enum quant plain[] = { QUANT_F32, QUANT_F16, QUANT_BF16 };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < 8; i++)
        for (uint32_t f = 0; f < 3; f++)
            for (uint32_t r = 0; r < N_ROW_COUNTS; r += 2) {
                struct op_shape c = { .format = plain[f],
                                      .rows = row_counts[r].rows,
                                      .most_rows = row_counts[r].most,
                                      .n_cols = widths[i],
                                      .n_out = 19,
                                      .limit = 5e-5 };
                compare("matmul", &c, record_matmul);
            }
    for (uint32_t r = 0; r < N_ROW_COUNTS; r++) {
        struct op_shape c = { .format = QUANT_Q4_0,
                              .rows = row_counts[r].rows,
                              .most_rows = row_counts[r].most,
                              .n_cols = 1056,
                              .n_out = 1000,
                              .limit = 5e-4 };
        compare("matmul", &c, record_matmul);
    }
}

// Rows and sizes that take gemm_hopper through every width of a tile, with tiles shared among blocks and
// after whole ones.
static void products_in_tiles(void **state)
{
    static const uint32_t rows[][2] = { { 2, 2 },   { 8, 8 },   { 9, 16 },    { 17, 17 },   { 32, 32 },
                                        { 63, 64 }, { 65, 65 }, { 129, 200 }, { 300, 512 }, { 3, 512 } };
    static const uint32_t sizes[][2] = {
        { 512, 160 }, { 1056, 1008 }, { 2048, 592 }, { 512, 5136 }, { 2208, 2000 }
    };

    (void)state;
    skip_without_gpu();
    for (uint32_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        struct op_shape c = {
            .format = QUANT_BF16, .rows = rows[r][0], .most_rows = rows[r][1], .limit = 5e-5
        };
        for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            c.n_cols = sizes[i][0];
            c.n_out = sizes[i][1];
            c.bias = i % 2;
            c.format = QUANT_BF16;
            compare("matmul", &c, record_matmul);
            compare("gate_up", &c, record_gate_up);
            c.format = i == 2 ? QUANT_Q4_K : QUANT_Q8_0;
            c.limit = 5e-4;
            compare("matmul", &c, record_matmul);
            c.limit = 5e-5;
        }
        for (uint32_t i = 0; i < 6; i++) {
            struct op_shape q = { .format = QUANT_BF16,
                                  .other = i == 4 ? QUANT_Q8_0 : 0,
                                  .rows = rows[r][0],
                                  .most_rows = rows[r][1],
                                  .n_cols = 512,
                                  .head_dim = i == 5 ? 48 : 64 << i / 2 % 2,
                                  .n_heads = 6,
                                  .n_kv_heads = 2,
                                  .past = 20,
                                  .bias = i == 1,
                                  .pairs = i % 2 ? ROPE_HALVES : ROPE_ADJACENT,
                                  .limit = 5e-4 };
            q.k_format = q.v_format = KV_F16;
            compare("qkv", &q, record_qkv);
        }
    }
}

// The same with tiles enough for 132 multiprocessors: turns whose last two are dealt among all blocks, tiles
// of three warpgroups and of one, shared or not. Of 1,056 columns with more than 128 rows gemm_cluster: every
// width of a tile, one wave and more; of more columns its sizes for few tiles, split or not, of both heights
// and all widths, and several turns of low ones.
static void products_in_turns(void **state)
{
    static const struct op_shape shapes[] = {
        { .format = QUANT_BF16, .rows = 5, .most_rows = 64, .n_cols = 2048, .n_out = 27136 },
        { .format = QUANT_BF16, .rows = 5, .most_rows = 512, .n_cols = 2048, .n_out = 27136 },
        { .format = QUANT_Q8_0, .rows = 5, .most_rows = 512, .n_cols = 2048, .n_out = 27136 },
        { .format = QUANT_BF16, .rows = 5, .most_rows = 512, .n_cols = 2048, .n_out = 6048 },
        { .format = QUANT_BF16, .rows = 390, .most_rows = 512, .n_cols = 448, .n_out = 6048 },
        { .format = QUANT_BF16, .rows = 400, .most_rows = 512, .n_cols = 448, .n_out = 12096 },
        { .format = QUANT_BF16, .rows = 61, .most_rows = 64, .n_cols = 2048, .n_out = 9008 },
        { .format = QUANT_BF16, .rows = 30, .most_rows = 64, .n_cols = 2048, .n_out = 6144 },
        { .format = QUANT_BF16, .rows = 3, .most_rows = 160, .n_cols = 1056, .n_out = 27120, .bias = true },
        { .format = QUANT_BF16, .rows = 131, .most_rows = 160, .n_cols = 1056, .n_out = 10992 },
        { .format = QUANT_BF16, .rows = 7, .most_rows = 512, .n_cols = 1056, .n_out = 22512, .bias = true },
        { .format = QUANT_BF16, .rows = 260, .most_rows = 512, .n_cols = 1056, .n_out = 4080 },
        { .format = QUANT_BF16, .rows = 450, .most_rows = 512, .n_cols = 1056, .n_out = 8160, .bias = true },
        { .format = QUANT_BF16, .rows = 140, .most_rows = 512, .n_cols = 1056, .n_out = 6048, .bias = true },
        { .format = QUANT_BF16, .rows = 300, .most_rows = 512, .n_cols = 1056, .n_out = 12240 },
        { .format = QUANT_BF16, .rows = 270, .most_rows = 512, .n_cols = 1056, .n_out = 5792 },
        { .format = QUANT_BF16, .rows = 61, .most_rows = 64, .n_cols = 2048, .n_out = 4080, .bias = true },
        { .format = QUANT_BF16, .rows = 9, .most_rows = 64, .n_cols = 4096, .n_out = 3008 },
        { .format = QUANT_BF16, .rows = 70, .most_rows = 128, .n_cols = 2080, .n_out = 6128, .bias = true },
        { .format = QUANT_BF16, .rows = 128, .most_rows = 128, .n_cols = 2048, .n_out = 4080 },
        { .format = QUANT_BF16, .rows = 3, .most_rows = 100, .n_cols = 2080, .n_out = 4096, .bias = true },
        { .format = QUANT_BF16, .rows = 127, .most_rows = 128, .n_cols = 2080, .n_out = 10992, .bias = true },
        { .format = QUANT_BF16, .rows = 20, .most_rows = 128, .n_cols = 2048, .n_out = 12272 },
        { .format = QUANT_BF16, .rows = 50, .most_rows = 64, .n_cols = 2080, .n_out = 10992, .bias = true },
        { .format = QUANT_BF16, .rows = 70, .most_rows = 128, .n_cols = 2080, .n_out = 22160, .bias = true },
        { .format = QUANT_BF16, .rows = 5, .most_rows = 128, .n_cols = 2048, .n_out = 33248 },
        { .format = QUANT_BF16, .rows = 64, .most_rows = 64, .n_cols = 2048, .n_out = 12272 },
        { .format = QUANT_BF16, .rows = 250, .most_rows = 256, .n_cols = 2080, .n_out = 6128 },
        { .format = QUANT_BF16, .rows = 2, .most_rows = 256, .n_cols = 2048, .n_out = 6144, .bias = true },
        { .format = QUANT_BF16, .rows = 150, .most_rows = 256, .n_cols = 2080, .n_out = 4080, .bias = true },
        { .format = QUANT_BF16, .rows = 260, .most_rows = 512, .n_cols = 2048, .n_out = 2032, .bias = true },
    };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct op_shape c = shapes[i];
        c.limit = 5e-4;
        compare("matmul", &c, record_matmul);
        c.n_out = c.n_out / 32 * 16;
        if (c.n_cols == 1056)
            compare("gate_up", &c, record_gate_up);
    }
}

// gemm_hopper with every format and height of a tile: columns that end inside a step of 128, tiles that
// blocks share and pairs that end inside a tile, an odd number of outputs.
static void many_rows_of_every_format(void **state)
{
    static const uint32_t rows[][2] = { { 17, 32 }, { 61, 64 }, { 100, 128 }, { 200, 256 } };
    static const uint32_t sizes[][2] = { { 448, 4400 }, { 2112, 401 }, { 2304, 601 } };

    (void)state;
    skip_without_gpu();
    for (enum quant format = QUANT_F16; format < N_WEIGHT_QUANTS; format++)
        for (uint32_t r = 0; r < sizeof rows / sizeof *rows; r++)
            for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                struct op_shape c = { .format = format,
                                      .rows = rows[r][0],
                                      .most_rows = rows[r][1],
                                      .n_cols = sizes[i][0],
                                      .n_out = sizes[i][1],
                                      .bias = r % 2,
                                      .limit = 5e-4 };
                if (c.n_cols % quant_info(format)->block_elements != 0)
                    continue;
                compare("matmul", &c, record_matmul);
                c.n_out = c.n_out / 2;
                compare("gate_up", &c, record_gate_up);
            }
}

// Wide and tall enough that a block goes through several stages and every stage is filled again.
static void products_of_real_sizes(void **state)
{
    static const uint32_t sizes[][2] = {
        { 576, 9000 }, { 1536, 577 }, { 4096, 16000 }, { 5632, 4098 }, { 14336, 4096 }
    };
    static const enum quant kinds[] = { QUANT_Q4_0, QUANT_Q8_0, QUANT_BF16, QUANT_Q3_K,
                                        QUANT_Q4_K, QUANT_Q6_K, QUANT_Q5_1 };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (uint32_t f = 0; f < sizeof kinds / sizeof *kinds; f++) {
            struct op_shape c = { .format = kinds[f],
                                  .rows = 1,
                                  .most_rows = 1,
                                  .n_cols = sizes[i][0],
                                  .n_out = sizes[i][1],
                                  .limit = 5e-4 };
            if (c.n_cols % quant_info(c.format)->block_elements != 0)
                continue;
            compare("matmul", &c, record_matmul);
            c.n_out = 132;
            c.limit = 5e-3;
            compare("gate_up", &c, record_gate_up);
            c.rows = 11; // rows that share the weights
            c.most_rows = 16;
            compare("gate_up", &c, record_gate_up);
            c.n_out = sizes[i][1];
            c.limit = 5e-4;
            compare("matmul", &c, record_matmul);
        }
}

// One row: so many pairs of short rows that a warp takes two at a time (the last ones alone), lanes with more
// than two blocks, and rows that do not fit beside a ring.
static void rows_of_many_and_of_long_products(void **state)
{
    static const struct op_shape shapes[] = { { .format = QUANT_Q2_K, .n_cols = 2304, .n_out = 51200 + 38 },
                                              { .format = QUANT_IQ4_XS, .n_cols = 2304, .n_out = 51200 + 2 },
                                              { .format = QUANT_Q4_0, .n_cols = 2080, .n_out = 51200 + 14 },
                                              { .format = QUANT_Q2_K, .n_cols = 5120, .n_out = 12000 + 38 },
                                              { .format = QUANT_Q3_K, .n_cols = 4096, .n_out = 20000 + 2 },
                                              { .format = QUANT_Q3_K, .n_cols = 5120, .n_out = 12000 + 38 },
                                              { .format = QUANT_Q3_K, .n_cols = 14336, .n_out = 4000 + 3 },
                                              { .format = QUANT_F16, .n_cols = 20488, .n_out = 600 },
                                              { .format = QUANT_F16, .n_cols = 32768, .n_out = 300 },
                                              { .format = QUANT_BF16, .n_cols = 32768, .n_out = 301 },
                                              { .format = QUANT_BF16, .n_cols = 40960, .n_out = 301 },
                                              { .format = QUANT_Q4_K, .n_cols = 32768, .n_out = 300 } };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct op_shape c = shapes[i];
        c.rows = c.most_rows = 1;
        c.limit = 5e-4;
        compare("matmul", &c, record_matmul);
        c.n_out = 132;
        c.limit = 5e-3;
        compare("gate_up", &c, record_gate_up);
    }
}

static void qkv_in_every_shape(void **state)
{
    (void)state;
    skip_without_gpu();
    for (uint32_t r = 0; r < N_ROW_COUNTS; r++)
        for (uint32_t i = 0; i < 9; i++) {
            struct op_shape c = { .format = i == 8 ? QUANT_Q8_16 : QUANT_Q4_K,
                                  .other = i & 1 ? QUANT_Q6_K : 0,
                                  .rows = row_counts[r].rows,
                                  .most_rows = row_counts[r].most,
                                  .n_cols = i == 8 ? 2048 : 512,
                                  .head_dim = 64,
                                  .n_heads = 6,
                                  .n_kv_heads = 2,
                                  .past = 20,
                                  .limit = 5e-4 };
            c.k_format = c.v_format = i & 2 ? KV_F16 : KV_F32;
            c.pairs = i & 4 ? ROPE_ADJACENT : ROPE_HALVES;
            c.bias = i & 1;
            compare("qkv", &c, record_qkv);
            c.head_norm = true;
            compare("qkv norm", &c, record_qkv);
            c.exact = true;
            c.limit = c.k_format == KV_F16 ? 1e-6 : 1e-10;
            compare("qkv", &c, record_qkv);
        }
}

static void rope_store_alone(void **state)
{
    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < 4; i++) {
        struct op_shape c = { .rows = 9,
                              .most_rows = 16,
                              .head_dim = 40,
                              .n_heads = 5,
                              .n_kv_heads = 1,
                              .past = 11,
                              .pairs = i & 1 ? ROPE_ADJACENT : ROPE_HALVES,
                              .head_norm = i & 2 };
        c.k_format = c.v_format = i & 1 ? KV_F16 : KV_F32;
        c.limit = i & 1 ? 1e-7 : 1e-10;
        sides_check(gpu, "rope_store", &c, record_rope_store); // no graph: q is rotated in place, so once
    }
}

static void attention_in_every_shape(void **state)
{
    static const uint32_t heads[][3] = { { 64, 6, 2 }, { 128, 8, 2 },  { 128, 4, 4 }, { 40, 3, 1 },
                                         { 18, 2, 2 }, { 256, 16, 1 }, { 256, 8, 4 }, { 512, 8, 1 } };

    (void)state;
    skip_without_gpu();
    for (uint32_t r = 0; r < N_ROW_COUNTS; r++)
        for (uint32_t h = 0; h < sizeof heads / sizeof *heads; h++)
            for (uint32_t i = r % 2; i < 4; i += 2) {
                struct op_shape c = { .rows = row_counts[r].rows,
                                      .most_rows = row_counts[r].most,
                                      .head_dim = heads[h][0],
                                      .n_heads = heads[h][1],
                                      .n_kv_heads = heads[h][2],
                                      .past = i & 1 ? 250 : 0,
                                      .window = i == 3 ? 33 : 0 };
                c.k_format = c.v_format = i ? KV_F16 : KV_F32;
                c.limit = i ? 1e-6 : 1e-10;
                c.n_cols = c.head_dim;
                compare("attend", &c, record_attend);
            }
}

// Every kernel for heads of 64, of gpt-oss among them; others, for which attend_plain has to do.
static void attention_with_sinks(void **state)
{
    static const uint32_t heads[][3] = { { 64, 64, 8 }, { 64, 3, 1 }, { 128, 4, 2 }, { 40, 3, 1 } };
    static const enum kv_format kinds[][2] = { { KV_F16, KV_F16 },
                                               { KV_BF16, KV_BF16 },
                                               { KV_Q8_0, KV_Q8_0 },
                                               { KV_Q8_0, KV_F16 },
                                               { KV_F32, KV_F32 } };
    static const uint32_t windows[] = { 0, 33, 128 };

    (void)state;
    skip_without_gpu();
    for (uint32_t r = 0; r < N_ROW_COUNTS; r++)
        for (uint32_t h = 0; h < 4; h++)
            for (uint32_t k = 0; k < 5; k++) {
                bool exact = kinds[k][0] == KV_F32, odd = heads[h][0] % KV_Q8_0_BLOCK != 0;
                struct op_shape c = { .rows = row_counts[r].rows,
                                      .most_rows = row_counts[r].most,
                                      .n_cols = heads[h][0],
                                      .head_dim = heads[h][0],
                                      .n_heads = heads[h][1],
                                      .n_kv_heads = heads[h][2],
                                      .past = (r + k) % 2 ? 290 : 0,
                                      .window = windows[(r + h + k) % 3],
                                      .k_format = odd && !exact ? KV_F16 : kinds[k][0],
                                      .v_format = odd && !exact ? KV_F16 : kinds[k][1],
                                      .bias = true,
                                      .invariant = h == 1 && r % 2,
                                      .limit = exact ? 1e-10 : 1e-6 };
                compare("attend", &c, record_attend);
            }
}

// Decode rows before prompts, none but decode rows, and more of them than a tile has rows.
static void attention_of_mixed_steps(void **state)
{
    static const struct {
        uint32_t rows, most, decode;
    } steps[] = { { 130, 160, 128 }, { 100, 128, 100 }, { 70, 300, 1 },
                  { 290, 300, 63 },  { 290, 300, 65 },  { 66, 128, 64 } };
    static const enum kv_format kinds[][2] = {
        { KV_F16, KV_F16 }, { KV_BF16, KV_BF16 }, { KV_Q8_0, KV_Q8_0 }, { KV_Q8_0, KV_F16 }
    };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < sizeof steps / sizeof *steps; i++)
        for (uint32_t k = 0; k < 4; k++)
            for (uint32_t head_dim = 64; head_dim <= 512; head_dim *= 2) {
                struct op_shape c = { .rows = steps[i].rows,
                                      .most_rows = steps[i].most,
                                      .decode = steps[i].decode,
                                      .n_cols = head_dim,
                                      .head_dim = head_dim,
                                      .n_heads = 6,
                                      .n_kv_heads = 2,
                                      .past = k == 0 ? 0 : 290,
                                      .window = i == 3 ? 33 : 0,
                                      .bias = i % 2,
                                      .k_format = kinds[k][0],
                                      .v_format = kinds[k][1],
                                      .limit = 1e-6 };
                compare("attend", &c, record_attend);
            }
}

static void record_attend_then_matmul(struct side *s, const struct op_shape *c)
{
    uint32_t n_q = c->n_heads * c->head_dim;
    struct tensor attended = tape_tensor(s->tape, n_q, ROWS_STEP), q = side_tensor(s, n_q, ROWS_STEP);
    const struct weight *w = side_weight(s, c->format, c->n_out, n_q);
    op_attend(s->tape, (struct attend){ .q = q,
                                        .out = attended,
                                        .pages = side_pages(s, c),
                                        .scale = 1 / sqrtf((float)c->head_dim) });
    op_matmul(s->tape, (struct matmul){ .out = side_tensor(s, c->n_out, ROWS_STEP), .in = attended, .w = w });
}

static void record_gate_up_then_matmul(struct side *s, const struct op_shape *c)
{
    struct tensor ffn = tape_tensor(s->tape, c->n_out, ROWS_STEP), in = side_tensor(s, c->n_cols, ROWS_STEP);
    const struct weight *norm = side_vector(s, c->n_cols),
                        *gate = side_weight(s, c->format, c->n_out, c->n_cols);
    const struct weight *up = side_weight(s, c->format, c->n_out, c->n_cols),
                        *down = side_weight(s, c->other, 48, c->n_out);
    op_gate_up(s->tape, (struct gate_up){ .out = ffn,
                                          .in = in,
                                          .norm = norm,
                                          .gate = gate,
                                          .up = up,
                                          .activation = ACTIVATION_SILU,
                                          .eps = 1e-5f });
    op_matmul(s->tape, (struct matmul){ .out = side_tensor(s, 48, ROWS_STEP), .in = ffn, .w = down });
}

// What goes to a command that begins with a norm.
static struct tensor record_residual(struct side *s, const struct op_shape *c)
{
    struct tensor x = tape_tensor(s->tape, c->n_out, ROWS_STEP), in = side_tensor(s, c->n_cols, ROWS_STEP);
    struct tensor add = side_tensor(s, c->n_out, ROWS_STEP);
    const struct weight *w = side_weight(s, c->format, c->n_out, c->n_cols),
                        *bias = c->bias ? side_vector(s, c->n_out) : NULL;
    op_matmul(s->tape, (struct matmul){ .out = x, .in = in, .w = w, .bias = bias, .add = add });
    return x;
}

static void record_matmul_then_gate_up(struct side *s, const struct op_shape *c)
{
    struct tensor x = record_residual(s, c);
    const struct weight *norm = side_vector(s, c->n_out), *gate = side_weight(s, c->other, 40, c->n_out);
    const struct weight *up = side_weight(s, c->other, 40, c->n_out);
    op_gate_up(s->tape, (struct gate_up){ .out = side_tensor(s, 40, ROWS_STEP),
                                          .in = x,
                                          .norm = norm,
                                          .gate = gate,
                                          .up = up,
                                          .eps = 1e-5f });
}

static void record_matmul_then_qkv(struct side *s, const struct op_shape *c)
{
    struct tensor x = record_residual(s, c);
    uint32_t n_q = c->n_heads * c->head_dim, n_kv = c->n_kv_heads * c->head_dim;
    struct qkv m = { .in = x,
                     .norm = side_vector(s, c->n_out),
                     .wq = side_weight(s, c->other, n_q, c->n_out),
                     .wk = side_weight(s, c->other, n_kv, c->n_out),
                     .wv = side_weight(s, c->format == QUANT_Q4_0 ? QUANT_Q5_0 : c->other, n_kv, c->n_out),
                     .angles = side_tensor(s, c->head_dim, ROWS_STEP),
                     .pages = side_pages(s, c),
                     .eps = 1e-6f };
    m.q = side_tensor(s, n_q, ROWS_STEP);
    op_qkv(s->tape, m);
}

static void compare_residual(struct op_shape *c)
{
    static const enum quant others[] = { QUANT_Q8_0, QUANT_Q4_K, QUANT_Q4_0, QUANT_BF16 };

    for (uint32_t i = 0; i < sizeof others / sizeof *others; i++) {
        c->other = others[i];
        c->bias = i % 2;
        if (c->n_out % quant_info(c->other)->block_elements != 0)
            continue;
        c->limit = 5e-3;
        compare("matmul, gate_up", c, record_matmul_then_gate_up);
        c->limit = 5e-4;
        compare("matmul, qkv", c, record_matmul_then_qkv);
    }
}

// By gemm_int8, with whole columns and with split ones, for gemm_int8 in one or two formats, and for others.
static void normalised_rows_packed_by_the_command_before(void **state)
{
    static const uint32_t rows[][2] = { { 5, 7 }, { 8, 8 }, { 1, 4 }, { 11, 16 } };
    static const uint32_t sizes[][2] = {
        { 2048, 2048 }, { 2080, 2048 }, { 2048, 8192 }, { 2080, 14336 }, { 512, 2048 }
    };
    static const enum quant kinds[] = { QUANT_Q4_0, QUANT_Q4_K, QUANT_Q6_K };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (uint32_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            struct op_shape c = { .format = kinds[(i + r) % 3],
                                  .rows = rows[r][0],
                                  .most_rows = rows[r][1],
                                  .n_out = sizes[i][0],
                                  .n_cols = sizes[i][1],
                                  .head_dim = 64,
                                  .n_heads = 2,
                                  .n_kv_heads = 1,
                                  .past = 20,
                                  .k_format = KV_F16,
                                  .v_format = KV_F16 };
            compare_residual(&c);
        }
}

// Rows that an operation packs for the product behind it: one by one, tape_diff packs them from the plain
// loop's numbers.
static void rows_packed_by_the_command_before(void **state)
{
    static const uint32_t rows[][2] = {
        { 5, 7 }, { 8, 8 }, { 13, 16 }, { 20, 32 }, { 57, 64 }, { 133, 300 }
    };
    static const enum quant kinds[] = { QUANT_Q4_0, QUANT_Q8_0, QUANT_BF16 };
    static const uint32_t heads[][3] = {
        { 128, 16, 4 }, { 64, 32, 8 }, { 64, 33, 3 }, { 256, 8, 4 }, { 512, 8, 1 }
    };

    (void)state;
    skip_without_gpu();
    for (uint32_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        for (uint32_t h = 0; h < 10; h++) {
            struct op_shape c = { .format = kinds[h % 3],
                                  .rows = rows[r][0],
                                  .most_rows = rows[r][1],
                                  .n_out = 72,
                                  .head_dim = heads[h / 2][0],
                                  .n_heads = heads[h / 2][1],
                                  .n_kv_heads = heads[h / 2][2],
                                  .past = h % 2 ? 300 : 20,
                                  .decode = h % 2 && rows[r][0] > 64 ? 65 : 0,
                                  .k_format = KV_F16,
                                  .v_format = KV_F16,
                                  .limit = 5e-4 };
            compare("attend, matmul", &c, record_attend_then_matmul);
        }
        for (uint32_t i = 0; i < 9; i++) { // of 416 columns the last tile has less than 128
            struct op_shape c = {
                .format = kinds[i % 3], .other = kinds[i / 3], .rows = rows[r][0], .most_rows = rows[r][1]
            };
            c.n_cols = 512;
            c.n_out = i % 2 ? 416 : 640;
            c.limit = c.format == QUANT_BF16 && c.other == QUANT_BF16 ? 5e-4 : 5e-3;
            compare("gate_up, matmul", &c, record_gate_up_then_matmul);
        }
    }
    struct op_shape c = { .format = QUANT_BF16,
                          .other = QUANT_BF16,
                          .rows = 133,
                          .most_rows = 300,
                          .n_cols = 1056,
                          .n_out = 2816,
                          .limit = 5e-4 };
    compare("gate_up, matmul", &c, record_gate_up_then_matmul); // by gemm_cluster
}

// The same products by the vendor's library, in every format and mode. Skipped where cuBLAS is not installed.
static void products_of_the_vendor(void **state)
{
    struct err err = { 0 };

    (void)state;
    skip_without_gpu();
    struct vendor *vendor = vendor_open(NULL, &err);
    if (!vendor) {
        print_message("%s\n", err.message);
        skip();
    }
    vendor_close(vendor);
    for (uint32_t f = 0; f < N_FORMATS; f++) {
        struct op_shape c = { .format = formats[f],
                              .rows = 33,
                              .most_rows = 40,
                              .n_cols = 512,
                              .n_out = 151,
                              .gemm = GEMM_VENDOR,
                              .limit = 5e-5 };
        c.bias = f % 2;
        compare("vendor", &c, record_matmul);
        compare("vendor", &c, record_gate_up);
        c.other = QUANT_BF16;
        compare("vendor", &c, record_gate_up);
        c.head_dim = 64;
        c.n_heads = 6;
        c.n_kv_heads = 2;
        c.k_format = c.v_format = KV_F16;
        c.pairs = f % 2 ? ROPE_ADJACENT : ROPE_HALVES;
        compare("vendor", &c, record_qkv);
    }
}

static void pages_of_every_format(void **state)
{
    static const enum kv_format kinds[][2] = {
        { KV_BF16, KV_BF16 }, { KV_Q8_0, KV_Q8_0 }, { KV_Q8_0, KV_F16 }, { KV_F16, KV_BF16 }
    };

    (void)state;
    skip_without_gpu();
    for (uint32_t r = 0; r < N_ROW_COUNTS; r++)
        for (uint32_t i = 0; i < 4; i++)
            for (uint32_t head_dim = 64; head_dim <= 256; head_dim *= 2) {
                struct op_shape c = { .format = QUANT_Q8_0,
                                      .rows = row_counts[r].rows,
                                      .most_rows = row_counts[r].most,
                                      .n_cols = 256,
                                      .head_dim = head_dim,
                                      .n_heads = 6,
                                      .n_kv_heads = 2,
                                      .past = 100,
                                      .k_format = kinds[i][0],
                                      .v_format = kinds[i][1],
                                      .limit = 5e-4 };
                compare("qkv", &c, record_qkv);
                c.limit = 1e-6;
                compare("attend", &c, record_attend);
            }
}

static void small_operations(void **state)
{
    (void)state;
    skip_without_gpu();
    for (uint32_t r = 0; r < N_ROW_COUNTS; r++) {
        struct op_shape c = {
            .rows = row_counts[r].rows, .most_rows = row_counts[r].most, .n_cols = 322, .limit = 1e-10
        };
        compare("small", &c, record_small);
    }
    for (uint32_t f = 0; f < N_FORMATS; f++) {
        struct op_shape c = {
            .format = formats[f], .rows = 9, .most_rows = 16, .n_cols = 512, .limit = 1e-13
        };
        compare("embed", &c, record_embed);
    }
}

static void sums_of_norms(void **state)
{
    static const uint32_t n_cols[] = { 1, 322, 2816, 5003 };

    (void)state;
    skip_without_gpu();
    for (uint32_t r = 0; r < N_ROW_COUNTS; r++)
        for (uint32_t i = 0; i < 4; i++) {
            struct op_shape c = { .rows = row_counts[r].rows,
                                  .most_rows = row_counts[r].most,
                                  .n_cols = n_cols[i],
                                  .bias = (r + i) % 2,
                                  .limit = 1e-11 };
            compare("rmsnorm_sum", &c, record_rmsnorm_sum);
        }
}

// The kernels that serve every other architecture, here on whatever there is.
static void products_and_attention_of_lesser_devices(void **state)
{
    skip_without_gpu();
    struct cuda *c = (struct cuda *)gpu;
    uint32_t capability = c->limits.capability;

    c->limits.capability = 80;
    products_of_every_format(state);
    products_of_odd_widths(state);
    qkv_in_every_shape(state);
    attention_in_every_shape(state);
    pages_of_every_format(state);
    c->limits.capability = capability;
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
        { .repeat_penalty = 1.1f,
          .penalty_window = 20,
          .top_p = 0.95f,
          .top_k = 60,
          .min_p = 0.05f,
          .temperature = 0.8f },
        { .repeat_penalty = 1, .top_p = 1, .min_p = 0.2f, .temperature = 1 },
        { .repeat_penalty = 1, .top_p = 1, .flags = SAMPLE_MASKED, .n_biases = 20 },
        { .repeat_penalty = 1, .top_p = 0.9f, .top_k = 30, .temperature = 0.8f, .flags = SAMPLE_MASKED },
        { .repeat_penalty = 1.2f, .penalty_window = 64, .top_p = 1, .temperature = 1, .n_biases = 7 },
    };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (uint32_t n = 0; n < (i < 2 ? 3 : 2);
             n++) { // the plain loop's fp32 sum over 128,256 weights is too coarse to compare draws
            struct op_shape c = { .rows = SLOTS,
                                  .most_rows = 16,
                                  .past = 100,
                                  .n_cols = n == 0   ? 1009
                                            : n == 1 ? 4099
                                                     : 128256,
                                  .sampling = ways[i],
                                  .limit = 0 };
            compare("sample", &c, record_sample);
        }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_operations),
        cmocka_unit_test(sums_of_norms),
        cmocka_unit_test(products_of_every_format),
        cmocka_unit_test(products_of_normed_rows),
        cmocka_unit_test(exact_products),
        cmocka_unit_test(products_of_odd_widths),
        cmocka_unit_test(rows_of_many_and_of_long_products),
        cmocka_unit_test(qkv_in_every_shape),
        cmocka_unit_test(rope_store_alone),
        cmocka_unit_test(attention_in_every_shape),
        cmocka_unit_test(attention_with_sinks),
        cmocka_unit_test(attention_of_mixed_steps),
        cmocka_unit_test(pages_of_every_format),
        cmocka_unit_test(rows_packed_by_the_command_before),
        cmocka_unit_test(normalised_rows_packed_by_the_command_before),
        cmocka_unit_test(products_of_the_vendor),
        cmocka_unit_test(products_and_attention_of_lesser_devices),
        cmocka_unit_test(products_of_real_sizes),
        cmocka_unit_test(products_in_tiles),
        cmocka_unit_test(products_in_turns),
        cmocka_unit_test(many_rows_of_every_format),
        cmocka_unit_test(sampling_as_defined),
    };
    return cuda_tests(tests, sizeof tests / sizeof *tests, argc, argv);
}
