// test_rows.c - norm, activation, RoPE and store, attention, and the fused operations: vector kernels against
// the plain loops, and a row's bits against the company it is in.
#include "ops/activate/activate.h"
#include "ops/attend/attend.h"
#include "ops/gate_up/gate_up.h"
#include "ops/qkv/qkv.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "op_harness.h"
#include "step_rows.h"

struct setting {
    uint32_t n_heads, n_kv_heads, head_dim, n_dims, window;
    enum kv_format k_format, v_format;
    enum rope_pairs pairs;
    enum quant wq, wv;
    bool exact, norms, biases, parts, sinks;
};
struct row_outcome {
    float *x, *k, *v; // [rows], and all pages
    size_t n, n_pages;
};

static void outcome_free(struct row_outcome *o)
{
    mem_free(o->x);
    mem_free(o->k);
    mem_free(o->v);
}

// Pages hold numbers that depend on the sequence and the position alone; everything else in them is NaN,
// which nobody may read.
static struct pages make_pages(struct bench *b, const struct setting *s, const struct rows *rows)
{
    struct page_shape shape = { s->n_kv_heads, s->head_dim, MAX_PAGES, (u16)s->k_format, (u16)s->v_format };
    uint64_t n = (uint64_t)SLOTS * MAX_PAGES * s->n_kv_heads * PAGE_TOKENS * s->head_dim;
    struct buffer *k = bench_buffer(b, n * 4), *v = bench_buffer(b, n * 4),
                  *table = bench_buffer(b, SLOTS * MAX_PAGES * 4);

    float x[512], y[512];
    uint32_t filled[SLOTS] = { 0 };

    memset(k->host, 0xff, n * 4);
    memset(v->host, 0xff, n * 4);
    for (uint32_t i = 0; i < SLOTS * MAX_PAGES; i++)
        ((uint32_t *)table->host)[i] = i * 9 % (SLOTS * MAX_PAGES);
    for (uint32_t r = 0; r < rows->n; r++)
        for (uint32_t t = filled[rows->slot[r]]; t <= rows->position[r]; t = filled[rows->slot[r]] = t + 1)
            for (uint32_t h = 0; h < s->n_kv_heads; h++) {
                uint32_t page = ((uint32_t *)table->host)[rows->slot[r] * MAX_PAGES + t / PAGE_TOKENS];
                bench_seed(((uint64_t)rows->slot[r] * 100000 + t) * 1000 + h + 1);
                for (uint32_t d = 0; d < s->head_dim; d++) {
                    x[d] = bench_normal();
                    y[d] = bench_normal();
                }
                page_write(&(struct page_token){ &shape, k->host, page, h, t % PAGE_TOKENS, false }, x);
                page_write(&(struct page_token){ &shape, v->host, page, h, t % PAGE_TOKENS, true }, y);
            }
    return (struct pages){ k, v, table, shape };
}

static float *copied_pages(const struct pages *p, bool is_v, size_t *n)
{
    uint32_t dim = p->shape.head_dim;
    *n = (size_t)SLOTS * MAX_PAGES * PAGE_TOKENS * p->shape.n_kv_heads * dim;
    float *copy = mem_alloc_array(*n, 4);
    for (uint32_t i = 0; i < *n / dim; i++)
        page_read(&(struct page_token){ &p->shape, is_v ? p->v->host : p->k->host,
                                        i / PAGE_TOKENS / p->shape.n_kv_heads,
                                        i / PAGE_TOKENS % p->shape.n_kv_heads, i % PAGE_TOKENS, is_v },
                  copy + (size_t)i * dim);
    return copy;
}

// As high as the highest scores, so that they take a good part of the weights.
static const struct weight *make_sinks(struct bench *b, uint32_t n_heads)
{
    const struct weight *sinks = bench_weight(b, QUANT_F32, 1, n_heads);
    float *at = sinks->buffer.host;

    bench_seed(3 + n_heads);
    for (uint32_t h = 0; h < n_heads; h++)
        at[h] = 6 + 3 * bench_normal();
    return sinks;
}

static struct row_outcome play_attend(const struct cpu_options *options, const struct setting *s,
                                      const struct rows *rows)
{
    struct bench b;
    float *q, *out;
    uint32_t n = s->n_heads * s->head_dim;

    bench_open(&b, options, (struct tape_limits){ .max_rows = rows->n, .max_outputs = 1 });
    struct attend a = { .pages = make_pages(&b, s, rows),
                        .scale = 1 / sqrtf((float)s->head_dim),
                        .window = s->window,
                        .sinks = s->sinks ? make_sinks(&b, s->n_heads) : NULL };
    a.q = bench_tensor(&b, n, ROWS_STEP, &q);
    a.out = bench_tensor(&b, n, ROWS_STEP, &out);
    fill_rows(q, n, rows);
    op_attend(b.tape, a);
    bench_seal(&b);
    fill_step(&b, rows);
    bench_play(&b);
    struct row_outcome o = { .x = mem_alloc((size_t)rows->n * n * 4), .n = (size_t)rows->n * n };
    memcpy(o.x, out, o.n * 4);
    bench_close(&b);
    return o;
}

static const struct setting settings[] = {
    { .n_heads = 4,
      .n_kv_heads = 2,
      .head_dim = 64,
      .n_dims = 64,
      .k_format = KV_F32,
      .v_format = KV_F32,
      .wq = QUANT_Q4_0,
      .wv = QUANT_Q8_0 },
    { .n_heads = 9,
      .n_kv_heads = 3,
      .head_dim = 64,
      .n_dims = 64,
      .k_format = KV_F16,
      .v_format = KV_F16,
      .pairs = ROPE_ADJACENT,
      .wq = QUANT_Q4_K,
      .wv = QUANT_Q6_K,
      .biases = true,
      .sinks = true },
    { .n_heads = 8,
      .n_kv_heads = 1,
      .head_dim = 128,
      .n_dims = 128,
      .k_format = KV_F16,
      .v_format = KV_F16,
      .window = 33,
      .wq = QUANT_BF16,
      .wv = QUANT_BF16,
      .norms = true },
    { .n_heads = 3,
      .n_kv_heads = 3,
      .head_dim = 20,
      .n_dims = 12,
      .k_format = KV_F32,
      .v_format = KV_F32,
      .window = 5,
      .wq = QUANT_F16,
      .wv = QUANT_F32,
      .norms = true,
      .biases = true,
      .sinks = true },
    { .n_heads = 4,
      .n_kv_heads = 2,
      .head_dim = 64,
      .n_dims = 64,
      .k_format = KV_BF16,
      .v_format = KV_BF16,
      .wq = QUANT_Q4_0,
      .wv = QUANT_Q8_0 },
    { .n_heads = 16,
      .n_kv_heads = 2,
      .head_dim = 64,
      .n_dims = 64,
      .window = 1500,
      .k_format = KV_BF16,
      .v_format = KV_BF16,
      .wq = QUANT_Q4_0,
      .wv = QUANT_Q8_0,
      .sinks = true },
    { .n_heads = 8,
      .n_kv_heads = 1,
      .head_dim = 128,
      .n_dims = 128,
      .k_format = KV_Q8_0,
      .v_format = KV_Q8_0,
      .window = 33,
      .wq = QUANT_Q4_0,
      .wv = QUANT_Q8_0 },
    { .n_heads = 6,
      .n_kv_heads = 2,
      .head_dim = 96,
      .n_dims = 64,
      .k_format = KV_Q8_0,
      .v_format = KV_BF16,
      .pairs = ROPE_ADJACENT,
      .wq = QUANT_Q4_0,
      .wv = QUANT_Q8_0 },
    { .n_heads = 2,
      .n_kv_heads = 2,
      .head_dim = 64,
      .n_dims = 64,
      .k_format = KV_F32,
      .v_format = KV_F16,
      .window = 70,
      .wq = QUANT_Q4_0,
      .wv = QUANT_Q8_0 },
    { .n_heads = 12,
      .n_kv_heads = 1,
      .head_dim = 40,
      .n_dims = 40,
      .k_format = KV_F16,
      .v_format = KV_F16,
      .wq = QUANT_F32,
      .wv = QUANT_Q5_1 },
};
enum { N_SETTINGS = sizeof settings / sizeof *settings };

static void attention_is_close_to_the_plain_loop(void **state)
{
    const struct rows rows[] = { mixed_rows(), rows_of_a_chunk(1, 530, 1), rows_of_a_chunk(2, 0, 40),
                                 rows_of_a_chunk(3, 2050, 2) };
    uint32_t sets[8], n_sets = bench_features(sets);

    (void)state;
    for (uint32_t i = 0; i < N_SETTINGS * 4; i++) {
        const struct setting *s = &settings[i / 4];
        struct row_outcome want = play_attend(&(struct cpu_options){ .plain = true }, s, &rows[i % 4]);
        for (uint32_t f = 0; f < n_sets; f++) {
            bool pairs = (sets[f] & CPU_AVX512_BF16) && (s->k_format > KV_F16 || s->v_format > KV_F16);
            struct row_outcome got =
                play_attend(&(struct cpu_options){ .features = sets[f], .n_threads = 2 }, s, &rows[i % 4]);
            double error = bench_error(want.x, got.x, want.n);
            if (!(error <= (pairs ? 2e-5 : 1e-10)))
                fail_msg("setting %u, rows %u, features %x: error %.2e", i / 4, i % 4, sets[f], error);
            outcome_free(&got);
        }
        outcome_free(&want);
    }
}

// A row alone and the same row in a chunk, in chunks cut elsewhere, beside other sequences.
static void attention_of_a_row_has_the_same_bits_in_any_batch(void **state)
{
    uint32_t sets[8], n_sets = bench_features(sets);

    (void)state;
    for (uint32_t i = 0; i < N_SETTINGS * n_sets; i++) {
        const struct setting *s = &settings[i % N_SETTINGS];
        struct cpu_options o = { .features = sets[i / N_SETTINGS], .n_threads = 1 + i % 3 };
        static const uint32_t starts[] = { 1010, 240, 2030 }; // across a split's end, or a block's
        uint32_t start = starts[(i / N_SETTINGS + i) % 3];
        struct rows all = rows_of_a_chunk(1, start, 33);
        struct row_outcome whole = play_attend(&o, s, &all);
        size_t n = whole.n / all.n;
        for (uint32_t first = 0; first < all.n;) {
            uint32_t length = 1 + (first * 5 + 2) % 19;
            length = length < all.n - first ? length : all.n - first;
            struct rows part = rows_of_a_chunk(1, start + first, length);
            struct row_outcome some = play_attend(&o, s, &part);
            assert_memory_equal(some.x, whole.x + first * n, length * n * 4);
            outcome_free(&some);
            first += length;
        }
        outcome_free(&whole);
    }
}

static struct row_outcome play_qkv(const struct cpu_options *options, const struct setting *s,
                                   const struct rows *rows)
{
    struct bench b;
    float *in, *q, *angles;
    uint32_t n_q = s->n_heads * s->head_dim, n_kv = s->n_kv_heads * s->head_dim, n_cols = 256;

    bench_open(
        &b, options,
        (struct tape_limits){ .max_rows = rows->n, .max_outputs = 1, .exact = s->exact, .parts = s->parts });
    struct qkv m = { .pages = make_pages(&b, s, rows), .pairs = s->pairs, .eps = 1e-5f };
    bench_seed(5);
    m.norm = bench_weight(&b, QUANT_F32, 1, n_cols);
    m.wq = bench_weight(&b, s->wq, n_q, n_cols);
    m.wk = bench_weight(&b, s->wq, n_kv, n_cols);
    m.wv = bench_weight(&b, s->wv, n_kv, n_cols);
    m.bq = s->biases ? bench_weight(&b, QUANT_F32, 1, n_q) : NULL;
    m.bk = s->biases ? bench_weight(&b, QUANT_F32, 1, n_kv) : NULL;
    m.q_norm = s->norms ? bench_weight(&b, QUANT_F32, 1, s->head_dim) : NULL;
    m.k_norm = s->norms ? bench_weight(&b, QUANT_F32, 1, s->head_dim) : NULL;
    m.in = bench_tensor(&b, n_cols, ROWS_STEP, &in);
    m.angles = bench_tensor(&b, s->n_dims, ROWS_STEP, &angles);
    m.q = bench_tensor(&b, n_q, ROWS_STEP, &q);
    fill_rows(in, n_cols, rows);
    fill_rows(angles, s->n_dims, rows);
    op_qkv(b.tape, m);
    bench_seal(&b);
    fill_step(&b, rows);
    bench_play(&b);
    struct row_outcome o = { .x = mem_alloc((size_t)rows->n * n_q * 4), .n = (size_t)rows->n * n_q };
    memcpy(o.x, q, o.n * 4);
    o.k = copied_pages(&m.pages, false, &o.n_pages);
    o.v = copied_pages(&m.pages, true, &o.n_pages);
    bench_close(&b);
    return o;
}

static void qkv_is_close_to_the_plain_loop(void **state)
{
    // A few numbers are rounded to the other side.
    static const double rounding[N_KV_FORMATS] = { 1e-9, 1e-8, 1e-6, 1e-6 };
    uint32_t sets[8], n_sets = bench_features(sets);

    (void)state;
    for (uint32_t i = 0; i < N_SETTINGS * 8; i++) {
        struct setting s = settings[i % N_SETTINGS];
        uint32_t v = i / N_SETTINGS;
        struct rows rows = v & 1 ? mixed_rows() : rows_of_a_chunk(3, 100, 3);
        s.exact = v & 2;
        s.parts = v & 4;
        struct row_outcome want = play_qkv(&(struct cpu_options){ .plain = true }, &s, &rows);
        for (uint32_t f = 0; f < n_sets; f++) {
            struct row_outcome got =
                play_qkv(&(struct cpu_options){ .features = sets[f], .n_threads = 2 }, &s, &rows);
            double q = bench_error(want.x, got.x, want.n), k = bench_error(want.k, got.k, want.n_pages);
            double values = bench_error(want.v, got.v, want.n_pages),
                   limit = s.exact ? rounding[s.k_format > s.v_format ? s.k_format : s.v_format] : 5e-4;
            if (!(q <= limit && k <= limit && values <= limit))
                fail_msg("setting %u, variant %u, features %x: errors q %.2e, k %.2e, v %.2e", i % N_SETTINGS,
                         v, sets[f], q, k, values);
            outcome_free(&got);
        }
        outcome_free(&want);
    }
}

static void qkv_of_a_row_has_the_same_bits_in_any_batch(void **state)
{
    uint32_t sets[8], n_sets = bench_features(sets);

    (void)state;
    for (uint32_t i = 0; i < N_SETTINGS * n_sets; i++) {
        const struct setting *s = &settings[i % N_SETTINGS];
        struct rows all = rows_of_a_chunk(1, 40, 33);
        struct row_outcome whole =
            play_qkv(&(struct cpu_options){ .features = sets[i / N_SETTINGS] }, s, &all);
        size_t n = whole.n / all.n;
        for (uint32_t first = 0; first < all.n;) {
            uint32_t length = 1 + (first * 5 + 2) % 19;
            length = length < all.n - first ? length : all.n - first;
            struct rows part = rows_of_a_chunk(1, 40 + first, length);
            struct row_outcome some =
                play_qkv(&(struct cpu_options){ .features = sets[i / N_SETTINGS], .n_threads = 3 }, s, &part);
            assert_memory_equal(some.x, whole.x + first * n, length * n * 4);
            outcome_free(&some);
            first += length;
        }
        outcome_free(&whole);
    }
}

struct ffn {
    enum quant gate, up;
    enum activation activation;
    uint32_t n_cols, n_out;
    bool exact, parts;
};

static struct row_outcome play_gate_up(const struct cpu_options *options, const struct ffn *f,
                                       const struct rows *rows)
{
    struct bench b;
    float *in, *out;
    struct gate_up g = { .activation = f->activation, .eps = 1e-6f };

    bench_open(
        &b, options,
        (struct tape_limits){ .max_rows = rows->n, .max_outputs = 1, .exact = f->exact, .parts = f->parts });
    bench_seed(9);
    g.norm = bench_weight(&b, QUANT_F32, 1, f->n_cols);
    g.gate = bench_weight(&b, f->gate, f->n_out, f->n_cols);
    g.up = bench_weight(&b, f->up, f->n_out, f->n_cols);
    g.in = bench_tensor(&b, f->n_cols, ROWS_STEP, &in);
    g.out = bench_tensor(&b, f->n_out, ROWS_STEP, &out);
    fill_rows(in, f->n_cols, rows);
    op_gate_up(b.tape, g);
    bench_seal(&b);
    fill_step(&b, rows);
    bench_play(&b);
    struct row_outcome o = { .x = mem_alloc((size_t)rows->n * f->n_out * 4),
                             .n = (size_t)rows->n * f->n_out };
    memcpy(o.x, out, o.n * 4);
    bench_close(&b);
    return o;
}

static const struct ffn ffns[] = {
    { QUANT_Q4_0, QUANT_Q4_0, ACTIVATION_SILU, 256, 192, false, false },
    { QUANT_Q5_K, QUANT_Q6_K, ACTIVATION_SILU, 512, 70, false, false },
    { QUANT_BF16, QUANT_Q8_0, ACTIVATION_GELU_TANH, 64, 33, false, false },
    { QUANT_F16, QUANT_F32, ACTIVATION_GELU_TANH, 51, 31, false, false },
};
enum { N_FFNS = sizeof ffns / sizeof *ffns };

static void gate_up_is_close_to_the_plain_loop(void **state)
{
    uint32_t sets[8], n_sets = bench_features(sets);

    (void)state;
    for (uint32_t i = 0; i < N_FFNS * 8; i++) {
        struct ffn f = ffns[i % N_FFNS];
        uint32_t v = i / N_FFNS;
        struct rows rows = v & 1 ? mixed_rows() : rows_of_a_chunk(3, 100, 3);
        f.exact = v & 2;
        f.parts = v & 4;
        struct row_outcome want = play_gate_up(&(struct cpu_options){ .plain = true }, &f, &rows);
        for (uint32_t j = 0; j < n_sets; j++) {
            struct row_outcome got =
                play_gate_up(&(struct cpu_options){ .features = sets[j], .n_threads = 2 }, &f, &rows);
            double error = bench_error(want.x, got.x, want.n),
                   limit = f.exact || f.up == QUANT_F32 ? 1e-9 : 5e-4;
            if (!(error <= limit))
                fail_msg("case %u, variant %u, features %x: error %.2e", i % N_FFNS, v, sets[j], error);
            outcome_free(&got);
        }
        outcome_free(&want);
    }
}

static void gate_up_of_a_row_has_the_same_bits_in_any_batch(void **state)
{
    uint32_t sets[8], n_sets = bench_features(sets);

    (void)state;
    for (uint32_t i = 0; i < N_FFNS * n_sets; i++) {
        const struct ffn *f = &ffns[i % N_FFNS];
        struct rows all = rows_of_a_chunk(1, 40, 64);
        struct row_outcome whole =
            play_gate_up(&(struct cpu_options){ .features = sets[i / N_FFNS] }, f, &all);
        for (uint32_t first = 0; first < all.n; first += 13) {
            struct rows part = rows_of_a_chunk(1, 40 + first, all.n - first);
            struct cpu_options o = { .features = sets[i / N_FFNS], .n_threads = 2, .no_repack = first % 2 };
            struct row_outcome some = play_gate_up(&o, f, &part);
            assert_memory_equal(some.x, whole.x + first * f->n_out, some.n * 4);
            outcome_free(&some);
        }
        outcome_free(&whole);
    }
}

// more: no scale, something to add, groups, a gain
static double rmsnorm_error(uint32_t features, uint32_t n_cols, bool more)
{
    struct bench plain, fast, *both[] = { &plain, &fast };
    float *out[2];

    for (uint32_t i = 0; i < 2; i++) {
        bench_open(both[i], &(struct cpu_options){ .plain = i == 0, .features = features },
                   (struct tape_limits){ .max_rows = 3, .max_outputs = 1 });
        bench_seed(n_cols);
        struct rmsnorm n = { .scale = bench_weight(both[i], QUANT_F32, 1, n_cols), .eps = 1e-5f };
        uint32_t n_all = more ? 3 * n_cols : n_cols;
        if (more) {
            n.scale = n_cols % 2 ? n.scale : NULL;
            n.n_groups = 3;
            n.gain = 0.75f;
            n.add = bench_tensor(both[i], n_all, ROWS_STEP, NULL);
        }
        n.in = bench_tensor(both[i], n_all, ROWS_STEP, NULL);
        n.out = bench_tensor(both[i], n_all, ROWS_STEP, &out[i]);
        op_rmsnorm(both[i]->tape, n);
        bench_seal(both[i]);
        bench_step(both[i])->n_rows = 3;
        bench_play(both[i]);
    }
    double error = bench_error(out[0], out[1], (more ? 9 : 3) * (size_t)n_cols);
    bench_close(&plain);
    bench_close(&fast);
    return error;
}

static void rmsnorm_is_close_at_every_length(void **state)
{
    uint32_t sets[8], n_sets = bench_features(sets);

    (void)state;
    for (uint32_t i = 0; i < n_sets; i++)
        for (uint32_t n = 1; n < 300; n += 1 + n / 20)
            assert_true(rmsnorm_error(sets[i], n, false) <= 1e-10 &&
                        rmsnorm_error(sets[i], n, true) <= 1e-10);
}

// Behind a product: (norm + add) * gain, in groups, by hand.
static void rmsnorm_adds_and_scales_groups(void **state)
{
    const float x[] = { 3, 4, 6, 8 }, added[] = { 1, -1, 0.5f, 2 };
    struct bench b;
    float *in, *add, *out;

    (void)state;
    bench_open(&b, &(struct cpu_options){ .plain = true },
               (struct tape_limits){ .max_rows = 1, .max_outputs = 1 });
    struct rmsnorm n = { .n_groups = 2, .gain = 0.5f, .eps = 1e-12f };
    n.in = bench_tensor(&b, 4, ROWS_STEP, &in);
    n.add = bench_tensor(&b, 4, ROWS_STEP, &add);
    n.out = bench_tensor(&b, 4, ROWS_STEP, &out);
    op_rmsnorm(b.tape, n);
    bench_seal(&b);
    bench_step(&b)->n_rows = 1;
    memcpy(in, x, sizeof x);
    memcpy(add, added, sizeof added);
    bench_play(&b);
    for (uint32_t i = 0; i < 4;
         i++) { // both groups have 3 and 4 in the same ratio: over sqrt(12.5) and twice that
        float want = (x[i] / (i < 2 ? 1 : 2) / sqrtf(12.5f) + added[i]) * 0.5f;
        assert_true(fabsf(out[i] - want) < 1e-6f);
    }
    bench_close(&b);
}

// The exponential inside: extremes must come out as the formula says.
static void activation_at_extremes(void **state)
{
    static const float x[] = { 0,     -0.0f,  1e-30f, 1,    -1,   20,    -20,   87,    -87,
                               88.8f, -88.8f, 103,    -103, 1e4f, -1e4f, 3e38f, -3e38f };
    enum { N = sizeof x / sizeof *x };
    uint32_t sets[8], n_sets = bench_features(sets);

    (void)state;
    for (uint32_t i = 0; i < n_sets * 2; i++) {
        struct bench b;
        float *gate, *up, *out;
        bench_open(&b, &(struct cpu_options){ .features = sets[i / 2] },
                   (struct tape_limits){ .max_rows = 1, .max_outputs = 1 });
        struct activate a = { .activation = i & 1 ? ACTIVATION_GELU_TANH : ACTIVATION_SILU };
        a.gate = bench_tensor(&b, N + 1, ROWS_STEP, &gate);
        a.up = bench_tensor(&b, N + 1, ROWS_STEP, &up);
        a.out = bench_tensor(&b, N + 1, ROWS_STEP, &out);
        memcpy(gate, x, sizeof x);
        gate[N] = NAN;
        for (uint32_t c = 0; c <= N; c++)
            up[c] = 1;
        op_activate(b.tape, a);
        bench_seal(&b);
        bench_step(&b)->n_rows = 1;
        bench_play(&b);
        for (uint32_t c = 0; c < N; c++) {
            double want = (double)activate_plain(a.activation, x[c]), off = fabs(want - (double)out[c]);
            if (!(off <= 1e-6 * fabs(want) + 1e-9))
                fail_msg("f(%g) = %g, not %g (features %x, activation %d)", (double)x[c], want,
                         (double)out[c], sets[i / 2], a.activation);
        }
        assert_true(isnan(out[N]));
        bench_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rmsnorm_is_close_at_every_length),
        cmocka_unit_test(rmsnorm_adds_and_scales_groups),
        cmocka_unit_test(activation_at_extremes),
        cmocka_unit_test(attention_is_close_to_the_plain_loop),
        cmocka_unit_test(attention_of_a_row_has_the_same_bits_in_any_batch),
        cmocka_unit_test(qkv_is_close_to_the_plain_loop),
        cmocka_unit_test(qkv_of_a_row_has_the_same_bits_in_any_batch),
        cmocka_unit_test(gate_up_is_close_to_the_plain_loop),
        cmocka_unit_test(gate_up_of_a_row_has_the_same_bits_in_any_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
