// test_cuda_latent.c - the CUDA kernels of attention in a latent space against their plain loops: sizes of
// real models and odd ones, pages of every format, one row to many, pasts that are split, modes.
#define SIDES_PAGES 96
#include "device/cuda_sides.h"
#include "ops/latent_sides.h"

static void attention_of_every_size(void **state)
{
    static const uint32_t pasts[] = { 0, 63, 500 };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < N_SIZES; i++)
        for (uint32_t f = 0; f < 4; f++)
            for (uint32_t r = 0; r < N_ROW_COUNTS; r++) {
                struct op_shape c = { .rows = row_counts[r].rows,
                                      .most_rows = row_counts[r].most,
                                      .past = pasts[(i + f + r) % 3],
                                      .decode = r % 3 == 2 ? 7 : 0,
                                      .head_dim = sizes[i].key,
                                      .n_out = sizes[i].latent,
                                      .n_heads = sizes[i].n_heads,
                                      .n_kv_heads = 1,
                                      .k_format = page_formats[f],
                                      .invariant = r % 4 == 3,
                                      .exact = page_formats[f] == KV_F32,
                                      .limit =
                                          page_formats[f] == KV_F32 || sizes[i].key != 576 ? 1e-10 : 5e-5 };
                if (format_fits(c.k_format, c.head_dim) && c.past + c.rows < MAX_PAGES * PAGE_TOKENS)
                    compare("latent_attend", &c, record_latent_attend);
            }
}

// The last key alone is seen with every past, and what lies behind it is NaN.
static void attention_with_every_end(void **state)
{
    (void)state;
    skip_without_gpu();
    for (uint32_t past = 0; past < 200; past += past < 70 ? 1 : 17)
        for (uint32_t f = 0; f < 3; f++) {
            struct op_shape c = { .rows = 1,
                                  .most_rows = past % 2 ? 1 : 128,
                                  .past = past,
                                  .head_dim = 576,
                                  .n_out = 512,
                                  .n_heads = 16 + past % 5,
                                  .n_kv_heads = 1,
                                  .k_format = page_formats[f],
                                  .limit = 5e-5 };
            compare("latent_attend", &c, record_latent_attend);
        }
}

// By latent_hopper, where there is one: several sequences in a tile, tiles of keys that are not full, heads
// of every number.
static void attention_of_prompts(void **state)
{
    static const uint32_t n_heads[] = { 20, 16, 128, 1, 5, 33 }, pasts[] = { 0, 1, 63, 64, 200 };
    static const uint32_t rows[][2] = { { 65, 65 }, { 130, 300 }, { 333, 400 } };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < sizeof n_heads / sizeof *n_heads; i++)
        for (uint32_t n = 0; n < sizeof pasts / sizeof *pasts; n++) {
            struct op_shape c = { .rows = rows[(i + n) % 3][0],
                                  .most_rows = rows[(i + n) % 3][1],
                                  .past = pasts[n],
                                  .decode = n % 2 ? 3 : 0,
                                  .head_dim = 576,
                                  .n_out = 512,
                                  .n_heads = n_heads[i],
                                  .n_kv_heads = 1,
                                  .k_format = KV_F16,
                                  .limit = 1e-6 };
            compare("latent_attend", &c, record_latent_attend);
        }
}

// By latent_few: pasts that one block takes, and such that are split.
static void attention_of_few_rows(void **state)
{
    static const uint32_t n_heads[] = { 20, 16, 1, 128 }, pasts[] = { 0, 15, 16, 40, 129, 470, 600 };
    static const uint32_t rows[][2] = { { 1, 1 }, { 3, 4 }, { 11, 16 } };

    (void)state;
    skip_without_gpu();
    for (uint32_t f = 0, n = 0; f < 3; f++)
        for (uint32_t i = 0; i < sizeof pasts / sizeof *pasts; i++, n++) {
            struct op_shape c = { .rows = rows[n % 3][0],
                                  .most_rows = rows[n % 3][1],
                                  .past = pasts[i],
                                  .head_dim = 576,
                                  .n_out = 512,
                                  .n_heads = n_heads[n % 4],
                                  .n_kv_heads = 1,
                                  .k_format = page_formats[f],
                                  .limit = 1e-9 };
            compare("latent_attend", &c, record_latent_attend);
        }
}

static void keys_of_every_format(void **state)
{
    static const double rounding[N_KV_FORMATS] = { 1e-12, 1e-9, 1e-7, 1e-7 };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < N_SIZES; i++)
        for (uint32_t f = 0; f < 4; f++)
            for (uint32_t r = 0; r < N_ROW_COUNTS; r += 2) {
                struct op_shape c = { .rows = row_counts[r].rows,
                                      .most_rows = row_counts[r].most,
                                      .past = 3,
                                      .head_dim = sizes[i].key,
                                      .n_out = sizes[i].latent,
                                      .n_kv_heads = 1,
                                      .n_heads = 1,
                                      .k_format = page_formats[f],
                                      .pairs = i % 2 ? ROPE_HALVES : ROPE_ADJACENT,
                                      .limit = rounding[page_formats[f]] };
                if (format_fits(c.k_format, c.head_dim))
                    sides_check(gpu, "latent_store", &c, record_latent_store);
            }
}

static void projections_of_every_format(void **state)
{
    static const struct {
        uint32_t n_heads, n_out, n_cols;
    } heads[] = { { 20, 512, 256 }, { 16, 128, 512 }, { 5, 75, 256 }, { 3, 40, 512 } };

    (void)state;
    skip_without_gpu();
    for (uint32_t f = 0; f < N_FORMATS; f++)
        for (uint32_t r = 0; r < N_ROW_COUNTS; r++) {
            struct op_shape c = { .format = formats[f],
                                  .rows = row_counts[r].rows,
                                  .most_rows = row_counts[r].most,
                                  .n_heads = heads[(f + r) % 4].n_heads,
                                  .n_out = heads[(f + r) % 4].n_out,
                                  .n_cols = heads[(f + r) % 4].n_cols,
                                  .bias = (f + r) % 3 == 0,
                                  .exact = r % 5 == 1,
                                  .invariant = r % 5 == 2,
                                  .limit = r % 5 == 1 ? 1e-10 : 5e-5 };
            compare("latent_project", &c, record_latent_project);
        }
    for (uint32_t r = 0; r < N_ROW_COUNTS; r++) { // widths that are no multiple of 32
        struct op_shape c = { .format = r % 2 ? QUANT_F32 : QUANT_F16,
                              .rows = row_counts[r].rows,
                              .most_rows = row_counts[r].most,
                              .n_heads = 3,
                              .n_out = 40,
                              .n_cols = 20 + r,
                              .bias = r % 2,
                              .limit = 1e-10 };
        compare("latent_project", &c, record_latent_project);
    }
}

// Limits of projections; keys are compared by what pages can hold.
static void keys_and_queries_in_one(void **state)
{
    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < N_SIZES; i++)
        for (uint32_t r = 0; r < N_ROW_COUNTS; r++) {
            struct op_shape c = { .format = formats[(5 * i + r) % N_FORMATS],
                                  .rows = row_counts[r].rows,
                                  .most_rows = row_counts[r].most,
                                  .past = 3,
                                  .head_dim = sizes[i].key,
                                  .n_out = sizes[i].latent,
                                  .n_cols = 256,
                                  .n_kv_heads = 1,
                                  .n_heads = sizes[i].n_heads < 20 ? sizes[i].n_heads : 20,
                                  .k_format = i % 2 ? KV_F16 : KV_BF16,
                                  .pairs = i % 2 ? ROPE_HALVES : ROPE_ADJACENT,
                                  .exact = r % 5 == 1,
                                  .invariant = r % 5 == 2,
                                  .limit = 5e-5 };
            sides_check(gpu, "latent_qk", &c, record_latent_qk);
        }
}

// One launch, and shapes that it leaves to the parts: formats, odd sizes, pages of F32. Pasts of one block,
// and such that are split.
static void blocks_of_one_row(void **state)
{
    static const uint32_t pasts[] = { 0, 15, 16, 40, 100, 127, 128, 300, 470, 600, 1300, 1400 };
    static const struct {
        enum quant format;
        uint32_t key, latent, n_heads, n_cols;
        record *record;
        bool fused;
    } blocks[] = { { QUANT_Q4_0, 576, 512, 20, 2048, record_latent_block, true },
                   { QUANT_Q8_0, 576, 512, 20, 2048, record_latent_block, true },
                   { QUANT_Q4_0, 576, 512, 16, 1024, record_wide_latent_block, true },
                   // few splits, of many pages
                   { QUANT_Q4_0, 576, 512, 128, 512, record_narrow_latent_block, true },
                   { QUANT_Q5_0, 576, 512, 20, 2048, record_latent_block, false },
                   { QUANT_Q8_0, 96, 64, 5, 256, record_latent_block, false } };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        for (uint32_t n = 0; n < sizeof pasts / sizeof *pasts; n++) {
            struct op_shape c = { .format = blocks[i].format,
                                  .rows = 1,
                                  .most_rows = 1,
                                  .past = pasts[n],
                                  .head_dim = blocks[i].key,
                                  .n_out = blocks[i].latent,
                                  .n_heads = blocks[i].n_heads,
                                  .n_kv_heads = 1,
                                  .n_cols = blocks[i].n_cols,
                                  .k_format = page_formats[(i + n) % 3],
                                  .pairs = n % 2 ? ROPE_HALVES : ROPE_ADJACENT,
                                  .limit = 1e-4 };
            struct sides s;
            sides_open(&s, gpu, &c, blocks[i].record);
            struct cuda_tape *native = s.fast.tape->native;
            assert_int_equal(native->plan.n_launches == 1, blocks[i].fused);
            sides_compare(&s, "latent_block", &c);
            check_graph(&s.fast);
            sides_close(&s);
        }
}

// A row's result with --invariant: alone in the step, and last of many.
static void a_row_has_the_same_bits_in_any_company(void **state)
{
    (void)state;
    skip_without_gpu();
    float *results[2];
    size_t bytes = (size_t)20 * 512 * sizeof(float);
    for (uint32_t i = 0; i < 2; i++) {
        struct op_shape c = { .rows = i ? 40 : 1,
                              .most_rows = i ? 300 : 1,
                              .past = i ? 461 : 500,
                              .head_dim = 576,
                              .n_out = 512,
                              .n_heads = 20,
                              .n_kv_heads = 1,
                              .k_format = KV_BF16,
                              .invariant = true };
        struct side s = { 0 };
        struct err err = { 0 };
        uint32_t words[20 * 576];
        side_open(&s, gpu, &c, record_latent_attend);
        // One sequence whose last row is the row alone: all rows of slot 0, its positions in turn.
        struct step *step = mem_alloc(step_bytes(c.most_rows, c.most_rows < 8 ? c.most_rows : 8));
        fill_step(&c, step, c.most_rows, c.most_rows < 8 ? c.most_rows : 8);
        for (uint32_t r = 0; r < c.rows; r++) {
            ((uint32_t *)step)[step_at_positions(c.most_rows) + r] = c.past + r;
            ((uint32_t *)step)[step_at_slots(c.most_rows) + r] = 0;
        }
        assert_ok(
            buffer_write(&s.step, 0, step, step_bytes(c.most_rows, c.most_rows < 8 ? c.most_rows : 8), &err),
            &err);
        bench_seed(3);
        for (uint32_t k = 0; k < 20 * 576; k++) {
            float x = bench_normal();
            memcpy(&words[k], &x, sizeof x);
        }
        assert_ok(
            buffer_write(&s.buffers[2], (uint64_t)(c.rows - 1) * sizeof words, words, sizeof words, &err),
            &err);
        assert_ok(tape_play(s.tape, &s.step, &err), &err);
        results[i] = mem_alloc(bytes);
        assert_ok(buffer_read(&s.buffers[s.n_buffers - 1], (c.rows - 1) * bytes, results[i], bytes, &err),
                  &err);
        mem_free(step);
        side_close(&s);
    }
    assert_memory_equal(results[0], results[1], bytes);
    mem_free(results[0]);
    mem_free(results[1]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_of_every_size),
        cmocka_unit_test(attention_with_every_end),
        cmocka_unit_test(attention_of_prompts),
        cmocka_unit_test(attention_of_few_rows),
        cmocka_unit_test(keys_of_every_format),
        cmocka_unit_test(projections_of_every_format),
        cmocka_unit_test(keys_and_queries_in_one),
        cmocka_unit_test(blocks_of_one_row),
        cmocka_unit_test(a_row_has_the_same_bits_in_any_company),
    };
    return cuda_tests(tests, sizeof tests / sizeof *tests, argc, argv);
}
