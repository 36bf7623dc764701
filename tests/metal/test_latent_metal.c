// test_latent_metal.c - the Metal kernels of attention in a latent space against their plain loops: sizes of
// real models and odd ones, pages of every format, one row to many, pasts that are split; a row's bits in
// company.
#include "emu_modes.h"
#include "ops/latent_sides.h"

static const struct rows_of_latents {
    uint32_t rows, most;
} row_cases[] = { { 1, 1 }, { 5, 16 }, { 0, 16 }, { 20, 32 }, { 7, 70 }, { 37, 40 } };
enum { N_ROW_CASES = sizeof row_cases / sizeof *row_cases };

static void attention_of_every_size(void **state)
{
    static const uint32_t pasts[] = { 0, 63, 300 };

    (void)state;
    for (uint32_t i = 0; i < N_SIZES; i++)
        for (uint32_t f = 0; f < 4; f++) {
            uint32_t r = (i + f) % N_ROW_CASES;
            bool large = sizes[i].key == 576;
            struct op_shape c = { .rows = large && row_cases[r].rows > 2 ? 2 : row_cases[r].rows,
                                  .most_rows = row_cases[r].most,
                                  .past = pasts[(i + f) % (large ? 2 : 3)],
                                  .head_dim = sizes[i].key,
                                  .n_out = sizes[i].latent,
                                  .n_heads = sizes[i].n_heads > 20 ? 9 : sizes[i].n_heads,
                                  .n_kv_heads = 1,
                                  .k_format = page_formats[f],
                                  .invariant = (i + f) % 4 == 3,
                                  .limit = 1e-10 };
            if (format_fits(c.k_format, c.head_dim))
                sides_check(gpu, "latent_attend", &c, record_latent_attend);
        }
}

// The last key alone is seen with every past, and what lies behind it is NaN. From 128 tokens on the past has
// parts.
static void attention_with_every_end(void **state)
{
    (void)state;
    for (uint32_t past = 0; past < 300; past += past < 34 ? 3 : 31) {
        struct op_shape c = { .rows = 1,
                              .most_rows = past % 2 ? 1 : 16,
                              .past = past,
                              .head_dim = 96,
                              .n_out = 64,
                              .n_heads = 6 + past % 5,
                              .n_kv_heads = 1,
                              .k_format = page_formats[past % 4],
                              .limit = 1e-10 };
        sides_check(gpu, "latent_attend", &c, record_latent_attend);
    }
}

static void keys_of_every_format(void **state)
{
    static const double rounding[N_KV_FORMATS] = { 1e-12, 1e-7, 1e-5, 1e-5 };

    (void)state;
    for (uint32_t i = 0; i < N_SIZES; i++)
        for (uint32_t f = 0; f < 4; f++) {
            struct op_shape c = { .rows = row_cases[(i + f) % N_ROW_CASES].rows,
                                  .most_rows = row_cases[(i + f) % N_ROW_CASES].most,
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
    } heads[] = { { 3, 64, 256 }, { 2, 33, 512 }, { 5, 75, 256 }, { 3, 40, 512 } };

    (void)state;
    for (enum quant q = 0; q < N_WEIGHT_QUANTS; q++)
        for (uint32_t i = 0; i < 3; i++) {
            uint32_t r = i < 2 ? i : 2 + q % (N_ROW_CASES - 2);
            struct op_shape c = { .format = q,
                                  .rows = row_cases[r].rows,
                                  .most_rows = row_cases[r].most,
                                  .n_heads = heads[(q + r) % 4].n_heads,
                                  .n_out = heads[(q + r) % 4].n_out,
                                  .n_cols = heads[(q + r) % 4].n_cols,
                                  .bias = (q + r) % 3 != 0,
                                  .exact = q % 3 == 1 };
            bool half = c.most_rows > 32 && !c.exact && q != QUANT_F32 && q != QUANT_BF16;
            c.limit = half ? 1e-6 : 1e-10;
            sides_check(gpu, "latent_project", &c, record_latent_project);
        }
    for (uint32_t r = 0; r < N_ROW_CASES; r++) { // widths that are no multiple of 8
        struct op_shape c = { .format = r % 2 ? QUANT_F32 : QUANT_F16,
                              .rows = row_cases[r].rows,
                              .most_rows = row_cases[r].most,
                              .n_heads = 3,
                              .n_out = 40,
                              .n_cols = 20 + r,
                              .bias = r % 2,
                              .limit = 1e-10 };
        sides_check(gpu, "latent_project", &c, record_latent_project);
    }
}

// The weights are drawn first, so that they and the first row of the inputs are the same for any number of
// rows.
static void record_project_alike(struct side *s, const struct op_shape *c)
{
    struct latent_project p = { .w = side_weight(s, c->format, c->n_heads * c->n_out, c->n_cols),
                                .n_heads = c->n_heads,
                                .pairs = c->pairs };

    p.in = side_tensor(s, c->n_heads * c->n_cols, ROWS_STEP);
    p.out = side_tensor(s, c->n_heads * c->n_out, ROWS_STEP);
    op_latent_project(s->tape, p);
}

// The result's first row, when a step of a tape for most_rows has `rows` rows, each of another sequence than
// its neighbours. Queries are drawn after pages, of which more rows want more: those of the first row are
// set.
static void first_row(struct op_shape c, uint32_t most_rows, uint32_t rows, record *recording, float *out)
{
    struct side s = { 0 };
    struct err err = { 0 };
    float q[3 * 96];

    c.most_rows = most_rows;
    c.rows = c.decode = rows;
    side_open(&s, gpu, &c, recording);
    bench_seed(3);
    for (uint32_t i = 0; i < 3 * 96; i++)
        q[i] = bench_normal();
    if (recording == record_latent_attend)
        assert_ok(buffer_write(&s.buffers[2], 0, q, sizeof q, &err), &err);
    assert_ok(tape_play(s.tape, &s.step, &err), &err);
    assert_ok(buffer_read(&s.buffers[s.n_buffers - 1], 0, out, 3 * c.n_out * sizeof *out, &err), &err);
    side_close(&s);
}

static void a_row_has_the_same_bits_in_any_company(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_WEIGHT_QUANTS + 2; i++) {
        struct op_shape c = { .format = i % N_WEIGHT_QUANTS,
                              .n_heads = 3,
                              .n_out = 64,
                              .n_cols = 256,
                              .head_dim = 96,
                              .n_kv_heads = 1,
                              .past = 290,
                              .k_format = i % 2 ? KV_F16 : KV_BF16,
                              .invariant = true };
        record *recording = i < N_WEIGHT_QUANTS ? record_project_alike : record_latent_attend;
        float many[3 * 64], alone[3 * 64];
        first_row(c, 40, 29, recording, many);
        first_row(c, 1, 1, recording, alone);
        assert_memory_equal(many, alone, sizeof alone);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_of_every_size),
        cmocka_unit_test(attention_with_every_end),
        cmocka_unit_test(keys_of_every_format),
        cmocka_unit_test(projections_of_every_format),
        cmocka_unit_test(a_row_has_the_same_bits_in_any_company),
    };

    return emu_run_in_modes(tests, sizeof tests / sizeof *tests);
}
