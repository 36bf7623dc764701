// test_cuda_attend.c - decode attention on CUDA against its plain loop: heads of every width, groups of few
// and many heads, pages of every format, pasts of one token to as many as are split, windows, sinks, and a
// row's bits in any company.
#include "device/cuda_sides.h"

static void attention_of_few_rows(void **state)
{
    static const uint32_t heads[][3] = { { 64, 6, 2 },  { 64, 12, 1 },  { 128, 8, 2 },
                                         { 128, 3, 3 }, { 128, 17, 1 }, { 256, 8, 1 },
                                         { 256, 4, 2 }, { 512, 8, 1 },  { 512, 6, 2 } };
    static const enum kv_format kinds[] = { KV_F16, KV_BF16, KV_Q8_0 };
    static const uint32_t pasts[] = { 0, 15, 16, 250, 470, 600 }, windows[] = { 0, 33, 300, 0, 0 };
    static const uint32_t rows[][2] = { { 1, 1 }, { 3, 4 }, { 1, 16 }, { 11, 16 } };

    (void)state;
    skip_without_gpu();
    for (uint32_t h = 0, n = 0; h < sizeof heads / sizeof *heads; h++)
        for (uint32_t k = 0; k < 3; k++)
            for (uint32_t i = 0; i < sizeof pasts / sizeof *pasts; i++, n++) {
                struct op_shape c = { .rows = rows[n % 4][0],
                                      .most_rows = rows[n % 4][1],
                                      .past = pasts[i],
                                      .window = windows[n % 5],
                                      .n_cols = heads[h][0],
                                      .head_dim = heads[h][0],
                                      .n_heads = heads[h][1],
                                      .n_kv_heads = heads[h][2],
                                      .k_format = kinds[k],
                                      .v_format = kinds[k],
                                      .bias = heads[h][0] == 64 && n % 2,
                                      .invariant = n % 7 == 3,
                                      .limit = 1e-9 };
                compare("attend", &c, record_attend);
            }
}

// Enough rows and heads for blocks of four, two and one warps.
static void attention_of_many_blocks(void **state)
{
    static const enum kv_format kinds[] = { KV_F16, KV_BF16, KV_Q8_0 };
    static const uint32_t n_kv_heads[] = { 5, 9, 17 }, pasts[] = { 0, 100, 30 };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0, n = 0; i < 3; i++)
        for (uint32_t k = 0; k < 3; k++, n++) {
            struct op_shape c = { .rows = 60,
                                  .most_rows = 64,
                                  .past = pasts[(i + k) % 3],
                                  .window = n % 4 == 1 ? 33 : 0,
                                  .n_cols = n % 2 ? 128 : 64,
                                  .head_dim = n % 2 ? 128 : 64,
                                  .n_heads = n_kv_heads[i] * (1 + k % 2),
                                  .n_kv_heads = n_kv_heads[i],
                                  .k_format = kinds[k],
                                  .v_format = kinds[k],
                                  .limit = 1e-9 };
            compare("attend", &c, record_attend);
        }
}

// One launch, and what it leaves to the parts: formats, biases, other heads, pages of F32. Pasts of one page,
// of one turn of a block and of several, and such that are split. n_out: dims that are not rotated.
static void blocks_of_one_row(void **state)
{
    static const uint32_t pasts[] = { 0, 15, 16, 40, 127, 128, 255, 256, 300, 470, 600 };
    static const struct {
        enum quant format, other;
        uint32_t head_dim, n_heads, n_kv_heads, n_cols, n_out, window;
        bool head_norm, bias, fused;
    } blocks[] = { { QUANT_Q4_0, QUANT_F32, 128, 32, 4, 2048, 0, 0, true, false, true },
                   { QUANT_Q8_0, QUANT_F32, 128, 32, 4, 2048, 0, 0, true, false, true },
                   { QUANT_Q4_0, QUANT_F32, 128, 12, 1, 2880, 64, 0, false, false, true },
                   { QUANT_Q4_0, QUANT_F32, 128, 16, 16, 2048, 0, 0, true, false, true },
                   { QUANT_Q4_0, QUANT_F32, 128, 20, 4, 4096, 0, 200, false, false, true },
                   { QUANT_Q8_0, QUANT_F32, 128, 3, 3, 544, 32, 33, true, false, true },
                   { QUANT_Q4_0, QUANT_Q8_0, 128, 8, 2, 1024, 0, 0, true, false, false },
                   { QUANT_Q5_0, QUANT_F32, 128, 8, 2, 1024, 0, 0, true, false, false },
                   { QUANT_Q4_0, QUANT_F32, 128, 8, 2, 1024, 0, 0, true, true, false },
                   { QUANT_Q4_0, QUANT_F32, 64, 8, 2, 1024, 0, 0, false, false, false } };
    static const enum kv_format kinds[] = { KV_F16, KV_BF16, KV_Q8_0 };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        for (uint32_t n = 0; n < sizeof pasts / sizeof *pasts; n++) {
            struct op_shape c = { .format = blocks[i].format,
                                  .other = blocks[i].other == QUANT_F32 ? 0 : blocks[i].other,
                                  .rows = 1,
                                  .most_rows = 1,
                                  .past = pasts[n],
                                  .window = blocks[i].window,
                                  .head_dim = blocks[i].head_dim,
                                  .n_heads = blocks[i].n_heads,
                                  .n_kv_heads = blocks[i].n_kv_heads,
                                  .n_cols = blocks[i].n_cols,
                                  .n_out = blocks[i].n_out,
                                  .k_format = kinds[(i + n) % 3],
                                  .v_format = kinds[(i + n) % 3],
                                  .head_norm = blocks[i].head_norm,
                                  .bias = blocks[i].bias,
                                  .pairs = n % 2 ? ROPE_HALVES : ROPE_ADJACENT,
                                  .limit = 1e-4 };
            struct sides s;
            sides_open(&s, gpu, &c, record_attend_block);
            struct cuda_tape *native = s.fast.tape->native;
            assert_int_equal(native->plan.n_launches == 1, blocks[i].fused);
            sides_compare(&s, "attend_block", &c);
            check_graph(&s.fast);
            sides_close(&s);
        }
}

// One sequence whose last row is the row alone: all rows of slot 0, its positions in turn; the last query.
static void last_row_alike(struct side *s, const struct op_shape *c, uint32_t outputs)
{
    struct step *step = mem_alloc(step_bytes(c->most_rows, outputs));
    uint32_t n = c->n_heads * c->head_dim;
    float *q = mem_alloc(n * sizeof *q);
    struct err err = { 0 };

    fill_step(c, step, c->most_rows, outputs);
    for (uint32_t r = 0; r < c->rows; r++) {
        ((uint32_t *)step)[step_at_positions(c->most_rows) + r] = c->past + r;
        ((uint32_t *)step)[step_at_slots(c->most_rows) + r] = 0;
    }
    assert_ok(buffer_write(&s->step, 0, step, step_bytes(c->most_rows, outputs), &err), &err);
    bench_seed(3);
    for (uint32_t i = 0; i < n; i++)
        q[i] = bench_normal();
    assert_ok(buffer_write(&s->buffers[0], (uint64_t)(c->rows - 1) * n * sizeof *q, q, n * sizeof *q, &err),
              &err);
    mem_free(q);
    mem_free(step);
}

// Pages first: they hold the same for any number of rows. Then the queries.
static void record_attend_pages(struct side *s, const struct op_shape *c)
{
    uint32_t n_q = c->n_heads * c->head_dim;
    struct attend a = { .scale = 1 / sqrtf((float)c->head_dim) };

    s->n_buffers = 1; // the queries take the first buffer's place
    a.pages = side_pages(s, c);
    uint32_t n = s->n_buffers;
    s->n_buffers = 0;
    a.q = side_tensor(s, n_q, ROWS_STEP);
    s->n_buffers = n;
    a.out = side_tensor(s, n_q, ROWS_STEP);
    op_attend(s->tape, a);
}

static void a_row_has_the_same_bits_in_any_company(void **state)
{
    static const uint32_t dims[] = { 64, 128, 256, 512 };

    (void)state;
    skip_without_gpu();
    for (uint32_t d = 0; d < 4; d++) {
        size_t bytes = (size_t)8 * dims[d] * sizeof(float);
        float *results[2];
        for (uint32_t i = 0; i < 2; i++) {
            struct op_shape c = { .rows = i ? 40 : 1,
                                  .most_rows = i ? 300 : 1,
                                  .past = i ? 461 : 500,
                                  .head_dim = dims[d],
                                  .n_heads = 8,
                                  .n_kv_heads = 2,
                                  .k_format = KV_F16,
                                  .v_format = KV_F16,
                                  .invariant = true };
            struct side s = { 0 };
            struct err err = { 0 };
            side_open(&s, gpu, &c, record_attend_pages);
            last_row_alike(&s, &c, c.most_rows < 8 ? c.most_rows : 8);
            assert_ok(tape_play(s.tape, &s.step, &err), &err);
            results[i] = mem_alloc(bytes);
            assert_ok(buffer_read(&s.buffers[s.n_buffers - 1], (c.rows - 1) * bytes, results[i], bytes, &err),
                      &err);
            side_close(&s);
        }
        assert_memory_equal(results[0], results[1], bytes);
        mem_free(results[0]);
        mem_free(results[1]);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_of_few_rows),
        cmocka_unit_test(attention_of_many_blocks),
        cmocka_unit_test(blocks_of_one_row),
        cmocka_unit_test(a_row_has_the_same_bits_in_any_company),
    };
    return cuda_tests(tests, sizeof tests / sizeof *tests, argc, argv);
}
