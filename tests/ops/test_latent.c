// test_latent.c - attention in a latent space: the plain loops against sums in double, vector kernels against
// the plain loops, and a row's bits against the company it is in.
#include "ops/latent/latent.h"
#include "ops/matmul/matmul.h"
#include "step_rows.h"

struct latent_setting {
    uint32_t n_heads, latent_dims, n_rotated;
    enum kv_format format;
    // of the projection: a head's matrix, and whether there is something to rotate
    uint32_t n_rows, n_cols;
    enum quant w;
    bool rotates, exact;
    enum rope_pairs pairs;
};

static const struct latent_setting settings[] = {
    { 5, 512, 64, KV_BF16, 512, 128, QUANT_Q8_0, true, false, ROPE_ADJACENT },
    { 3, 512, 64, KV_F16, 256, 512, QUANT_Q4_0, false, false, ROPE_ADJACENT },
    { 5, 40, 12, KV_F32, 40, 20, QUANT_F32, true, true, ROPE_ADJACENT },
    { 3, 36, 10, KV_F16, 18, 36, QUANT_F32, false, false, ROPE_HALVES },
    { 66, 64, 32, KV_Q8_0, 64, 64, QUANT_Q5_0, true, false, ROPE_ADJACENT },
    { 1, 34, 14, KV_BF16, 34, 48, QUANT_BF16, true, false, ROPE_HALVES },
    { 12, 128, 32, KV_F32, 77, 128, QUANT_F16, false, true, ROPE_ADJACENT },
    { 9, 96, 32, KV_Q8_0, 50, 96, QUANT_Q5_1, true, true, ROPE_ADJACENT },
};
enum { N_SETTINGS = sizeof settings / sizeof *settings };

struct latent_outcome {
    float *x; // [rows]
    float *keys;
    size_t n, n_keys;
};

static void outcome_free(struct latent_outcome *o)
{
    mem_free(o->x);
    mem_free(o->keys);
}

static uint32_t key_dims(const struct latent_setting *s)
{
    return s->latent_dims + s->n_rotated;
}

// Pages hold numbers that depend on the sequence and the position alone; everything else in them is NaN,
// which nobody may read.
static struct pages make_pages(struct bench *b, const struct latent_setting *s, const struct rows *rows)
{
    struct page_shape shape = { 1, key_dims(s), MAX_PAGES, (u16)s->format, (u16)s->format };
    uint64_t n = (uint64_t)SLOTS * MAX_PAGES * page_head_bytes(s->format, key_dims(s));
    struct buffer *k = bench_buffer(b, n), *table = bench_buffer(b, SLOTS * MAX_PAGES * 4);
    uint32_t filled[SLOTS] = { 0 };
    float x[1024];

    memset(k->host, 0xff, n);
    for (uint32_t i = 0; i < SLOTS * MAX_PAGES; i++)
        ((uint32_t *)table->host)[i] = i * 9 % (SLOTS * MAX_PAGES);
    for (uint32_t r = 0; r < rows->n; r++)
        for (uint32_t t = filled[rows->slot[r]]; t <= rows->position[r]; t = filled[rows->slot[r]] = t + 1) {
            uint32_t page = ((uint32_t *)table->host)[rows->slot[r] * MAX_PAGES + t / PAGE_TOKENS];
            bench_seed(((uint64_t)rows->slot[r] * 100000 + t) * 1000 + 1);
            for (uint32_t d = 0; d < key_dims(s); d++)
                x[d] = bench_normal();
            page_write(&(struct page_token){ &shape, k->host, page, 0, t % PAGE_TOKENS, false }, x);
        }
    return (struct pages){ k, NULL, table, shape };
}

static float *copied_keys(const struct pages *p, size_t *n)
{
    uint32_t dim = p->shape.head_dim, n_tokens = SLOTS * MAX_PAGES * PAGE_TOKENS;
    float *copy = mem_alloc_array((size_t)n_tokens * dim, sizeof *copy);

    *n = (size_t)n_tokens * dim;
    for (uint32_t i = 0; i < n_tokens; i++)
        page_read(&(struct page_token){ &p->shape, p->k->host, i / PAGE_TOKENS, 0, i % PAGE_TOKENS, false },
                  copy + (size_t)i * dim);
    return copy;
}

// What one operation of the three makes of the rows.
typedef struct latent_outcome play_fn(const struct cpu_options *options, const struct latent_setting *s,
                                      const struct rows *rows);

static struct latent_outcome played(struct bench *b, const struct rows *rows, const float *out,
                                    uint32_t n_cols)
{
    struct latent_outcome o = { .n = (size_t)rows->n * n_cols };

    bench_seal(b);
    fill_step(b, rows);
    bench_play(b);
    o.x = mem_alloc(o.n * sizeof *o.x);
    if (out && o.n > 0)
        memcpy(o.x, out, o.n * sizeof *o.x);
    return o;
}

static struct latent_outcome play_attend(const struct cpu_options *options, const struct latent_setting *s,
                                         const struct rows *rows)
{
    struct bench b;
    float *q, *out;
    uint32_t n_q = s->n_heads * key_dims(s), n_out = s->n_heads * s->latent_dims;

    bench_open(&b, options, (struct tape_limits){ .max_rows = rows->n, .max_outputs = 1 });
    struct latent_attend a = { .pages = make_pages(&b, s, rows),
                               .latent_dims = s->latent_dims,
                               .scale = 1 / sqrtf((float)key_dims(s)) };
    a.q = bench_tensor(&b, n_q, ROWS_STEP, &q);
    a.out = bench_tensor(&b, n_out, ROWS_STEP, &out);
    fill_rows(q, n_q, rows);
    op_latent_attend(b.tape, a);
    struct latent_outcome o = played(&b, rows, out, n_out);
    bench_close(&b);
    return o;
}

static struct latent_outcome play_project(const struct cpu_options *options, const struct latent_setting *s,
                                          const struct rows *rows)
{
    struct bench b;
    float *in, *angles, *out;
    uint32_t n_rotated = s->rotates ? s->n_rotated : 0, n_in = s->n_heads * (s->n_cols + n_rotated),
             n_out = s->n_heads * (s->n_rows + n_rotated);

    bench_open(&b, options, (struct tape_limits){ .max_rows = rows->n, .max_outputs = 1, .exact = s->exact });
    struct latent_project p = { .n_heads = s->n_heads, .pairs = s->pairs };
    bench_seed(9);
    p.w = bench_weight(&b, s->w, s->n_heads * s->n_rows, s->n_cols);
    p.in = bench_tensor(&b, n_in, ROWS_STEP, &in);
    if (s->rotates) {
        p.angles = bench_tensor(&b, n_rotated, ROWS_STEP, &angles);
        fill_rows(angles, n_rotated, rows);
    }
    p.out = bench_tensor(&b, n_out, ROWS_STEP, &out);
    fill_rows(in, n_in, rows);
    op_latent_project(b.tape, p);
    struct latent_outcome o = played(&b, rows, out, n_out);
    bench_close(&b);
    return o;
}

static struct latent_outcome play_store(const struct cpu_options *options, const struct latent_setting *s,
                                        const struct rows *rows)
{
    struct bench b;
    float *in, *angles;

    bench_open(&b, options, (struct tape_limits){ .max_rows = rows->n, .max_outputs = 1 });
    struct latent_store l = { .pages = make_pages(&b, s, rows), .pairs = s->pairs, .eps = 1e-6f };
    bench_seed(11);
    l.norm = bench_weight(&b, QUANT_F32, 1, s->latent_dims);
    l.in = bench_tensor(&b, key_dims(s), ROWS_STEP, &in);
    l.angles = bench_tensor(&b, s->n_rotated, ROWS_STEP, &angles);
    fill_rows(in, key_dims(s), rows);
    fill_rows(angles, s->n_rotated, rows);
    op_latent_store(b.tape, l);
    struct latent_outcome o = played(&b, rows, in, 0);
    o.keys = copied_keys(&l.pages, &o.n_keys);
    bench_close(&b);
    return o;
}

static void is_close_to_the_plain_loop(play_fn *play, const char *what)
{
    const struct rows rows[] = { mixed_rows(), rows_of_a_chunk(1, 530, 1), rows_of_a_chunk(2, 0, 40),
                                 rows_of_a_chunk(3, 2050, 2) };
    uint32_t sets[8], n_sets = bench_features(sets);

    for (uint32_t i = 0; i < N_SETTINGS * 4; i++) {
        const struct latent_setting *s = &settings[i / 4];
        struct latent_outcome want = play(&(struct cpu_options){ .plain = true }, s, &rows[i % 4]);
        for (uint32_t f = 0; f < n_sets; f++) {
            bool attends = play == play_attend, pairs = (sets[f] & CPU_AVX512_BF16) && s->format > KV_F16;
            double limit = attends ? (pairs ? 2e-5 : 1e-10) : s->exact ? 1e-10 : 5e-4;
            struct latent_outcome got =
                play(&(struct cpu_options){ .features = sets[f], .n_threads = 2 }, s, &rows[i % 4]);
            double error = bench_error(want.x, got.x, want.n);
            if (!(error <= limit))
                fail_msg("%s, setting %u, rows %u, features %x: error %.2e", what, i / 4, i % 4, sets[f],
                         error);
            outcome_free(&got);
        }
        outcome_free(&want);
    }
}

static void has_the_same_bits_in_any_batch(play_fn *play)
{
    uint32_t sets[8], n_sets = bench_features(sets);

    for (uint32_t i = 0; i < N_SETTINGS * n_sets; i++) {
        const struct latent_setting *s = &settings[i % N_SETTINGS];
        struct cpu_options o = { .features = sets[i / N_SETTINGS], .n_threads = 1 + i % 3 };
        static const uint32_t starts[] = { 1010, 240, 2030 }; // across a split's end, or a block's
        uint32_t start = starts[(i / N_SETTINGS + i) % 3];
        struct rows all = rows_of_a_chunk(1, start, 33);
        struct latent_outcome whole = play(&o, s, &all);
        size_t n = whole.n / all.n;
        for (uint32_t first = 0, length; first < all.n; first += length) {
            length = 1 + (first * 5 + 2) % 19;
            length = length < all.n - first ? length : all.n - first;
            struct rows part = rows_of_a_chunk(1, start + first, length);
            struct latent_outcome some = play(&o, s, &part);
            assert_memory_equal(some.x, whole.x + first * n, length * n * sizeof *some.x);
            outcome_free(&some);
        }
        outcome_free(&whole);
    }
}

static void attention_is_close_to_the_plain_loop(void **state)
{
    (void)state;
    is_close_to_the_plain_loop(play_attend, "attend");
}

static void attention_of_a_row_has_the_same_bits_in_any_batch(void **state)
{
    (void)state;
    has_the_same_bits_in_any_batch(play_attend);
}

static void projection_is_close_to_the_plain_loop(void **state)
{
    (void)state;
    is_close_to_the_plain_loop(play_project, "project");
}

static void projection_of_a_row_has_the_same_bits_in_any_batch(void **state)
{
    (void)state;
    has_the_same_bits_in_any_batch(play_project);
}

// The plain loop against the formula in double, with values expanded from the keys.
static void attention_is_the_formula(void **state)
{
    const struct latent_setting *s = &settings[2];
    struct rows rows = rows_of_a_chunk(1, 20, 3);
    uint32_t n_key = key_dims(s), n_q = s->n_heads * n_key;
    float *q = mem_alloc_array((size_t)rows.n * n_q, sizeof *q), key[64];
    struct latent_outcome got = play_attend(&(struct cpu_options){ .plain = true }, s, &rows);

    (void)state;
    fill_rows(q, n_q, &rows);
    for (uint32_t r = 0; r < rows.n; r++)
        for (uint32_t h = 0; h < s->n_heads; h++) {
            double sums[64] = { 0 }, total = 0;
            for (uint32_t t = 0; t <= rows.position[r]; t++) {
                double score = 0;
                bench_seed(((uint64_t)rows.slot[r] * 100000 + t) * 1000 + 1);
                for (uint32_t d = 0; d < n_key; d++) {
                    key[d] = bench_normal();
                    score += (double)key[d] * q[(size_t)r * n_q + h * n_key + d];
                }
                double weight = exp(score / sqrt(n_key));
                total += weight;
                for (uint32_t d = 0; d < s->latent_dims; d++)
                    sums[d] += weight * key[d];
            }
            for (uint32_t d = 0; d < s->latent_dims; d++)
                assert_true(fabs(sums[d] / total - got.x[((size_t)r * s->n_heads + h) * s->latent_dims + d]) <
                            1e-5);
        }
    outcome_free(&got);
    mem_free(q);
}

// A token's key: the latent normalised, the rest rotated, nothing else touched; the formats round it as they
// round any key.
static void store_writes_one_key_a_row(void **state)
{
    static const double rounding[N_KV_FORMATS] = { 1e-10, 1e-6, 1e-4, 1e-4 };

    (void)state;
    for (uint32_t i = 0; i < N_SETTINGS; i++) {
        const struct latent_setting *s = &settings[i];
        struct rows rows = mixed_rows();
        uint32_t n_key = key_dims(s);
        struct latent_outcome got = play_store(&(struct cpu_options){ 0 }, s, &rows);
        float *in = mem_alloc_array((size_t)rows.n * n_key, sizeof *in),
              *angles = mem_alloc_array((size_t)rows.n * s->n_rotated, sizeof *angles);
        float *norm = mem_alloc_array(s->latent_dims, sizeof *norm),
              *want = mem_alloc_array(n_key, sizeof *want);
        fill_rows(in, n_key, &rows);
        fill_rows(angles, s->n_rotated, &rows);
        bench_seed(11);
        for (uint32_t d = 0; d < s->latent_dims; d++)
            norm[d] = bench_normal();
        for (uint32_t r = 0; r < rows.n; r++) {
            const float *x = in + (size_t)r * n_key, *a = angles + (size_t)r * s->n_rotated,
                        *y = x + s->latent_dims;
            double squares = 0;
            for (uint32_t d = 0; d < s->latent_dims; d++)
                squares += (double)x[d] * x[d];
            for (uint32_t d = 0; d < s->latent_dims; d++)
                want[d] = (float)(x[d] * norm[d] / sqrt(squares / s->latent_dims + 1e-6));
            for (uint32_t p = 0; p < s->n_rotated / 2; p++) {
                uint32_t one = s->pairs == ROPE_ADJACENT ? 2 * p : p,
                         two = s->pairs == ROPE_ADJACENT ? 2 * p + 1 : p + s->n_rotated / 2;
                want[s->latent_dims + one] = y[one] * a[2 * p] - y[two] * a[2 * p + 1];
                want[s->latent_dims + two] = y[two] * a[2 * p] + y[one] * a[2 * p + 1];
            }
            uint32_t page =
                (rows.slot[r] * MAX_PAGES + rows.position[r] / PAGE_TOKENS) * 9 % (SLOTS * MAX_PAGES);
            double error = bench_error(
                want, got.keys + ((size_t)page * PAGE_TOKENS + rows.position[r] % PAGE_TOKENS) * n_key,
                n_key);
            if (!(error <= rounding[s->format]))
                fail_msg("setting %u, row %u: error %.2e", i, r, error);
        }
        mem_free(in);
        mem_free(angles);
        mem_free(norm);
        mem_free(want);
        outcome_free(&got);
    }
}

static void shapes_that_do_not_fit_are_refused(void **state)
{
    const struct latent_setting *s = &settings[2];
    struct rows rows = rows_of_a_chunk(0, 0, 1);
    struct err err = { 0 };

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        struct bench b;
        float *x;
        bench_open(&b, &(struct cpu_options){ 0 }, (struct tape_limits){ .max_rows = 1, .max_outputs = 1 });
        struct pages pages = make_pages(&b, s, &rows);
        struct tensor wide = bench_tensor(&b, 7 * key_dims(s), ROWS_STEP, &x),
                      angles = bench_tensor(&b, s->n_rotated + 2, ROWS_STEP, &x);
        if (i == 0)
            op_latent_attend(b.tape,
                             (struct latent_attend){
                                 .out = wide, .q = wide, .pages = pages, .latent_dims = s->latent_dims });
        else if (i == 1)
            op_latent_store(b.tape,
                            (struct latent_store){ .in = wide,
                                                   .norm = bench_weight(&b, QUANT_F32, 1, s->latent_dims),
                                                   .angles = angles,
                                                   .pages = pages });
        else
            op_latent_project(
                b.tape, (struct latent_project){
                            .out = wide, .in = wide, .w = bench_weight(&b, QUANT_F32, 10, 8), .n_heads = 3 });
        assert_false(tape_seal(b.tape, &err));
        assert_non_null(strstr(err.message, "latent_"));
        bench_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_is_the_formula),
        cmocka_unit_test(attention_is_close_to_the_plain_loop),
        cmocka_unit_test(attention_of_a_row_has_the_same_bits_in_any_batch),
        cmocka_unit_test(projection_is_close_to_the_plain_loop),
        cmocka_unit_test(projection_of_a_row_has_the_same_bits_in_any_batch),
        cmocka_unit_test(store_writes_one_key_a_row),
        cmocka_unit_test(shapes_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
