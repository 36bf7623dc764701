// test_cuda.c - every operation's CUDA kernels against its plain loop, over formats, row counts and odd shapes.
//
// An operation is recorded alike on both devices; tape_diff gives both the same inputs and measures what lies between the results. Then the
// same tape is played as a graph, which must give the same bits as its launches one by one. Skipped where there is no GPU.
#include <math.h>
#include <stdlib.h>
#include "device/cuda/cuda_internal.h"
#include "device/step.h"
#include "ops/activate/activate.h"
#include "ops/angles/angles.h"
#include "ops/attend/attend.h"
#include "ops/cuda_table.h"
#include "ops/embed/embed.h"
#include "ops/gate_up/gate_up.h"
#include "ops/matmul/matmul.h"
#include "ops/op_harness.h"
#include "ops/qkv/qkv.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/sample/sample.h"
#include "ops/select/select.h"

static struct device *gpu;

struct shape { // of one case
    uint32_t rows, most_rows, n_cols, n_out, head_dim, n_heads, n_kv_heads;
    uint32_t past; // tokens before the first row
    enum quant format, other;
    enum kv_format kv, kv_v; // of K; of V where it is another (not KV_F32)
    enum rope_pairs pairs;
    uint32_t window;
    bool exact, bias, head_norm;
    enum gemm gemm;
    struct sample_params sampling;
    double limit;
};

struct side {
    struct device *device;
    struct tape *tape;
    struct buffer buffers[24], step;
    struct weight weights[24];
    void *data[24];
    uint32_t n_buffers, n_weights;
    struct pages pages; // where an operation has some
};

enum { SLOTS = 4, MAX_PAGES = 40, VOCABULARY = 1003 };

static void *random_bytes(uint64_t bytes, enum operand_type type)
{
    unsigned char *data = malloc(bytes);
    for (uint64_t i = 0; i < bytes; i += type == OPERAND_F16 ? 2 : 4) {
        float v = bench_normal();
        uint16_t half = quant_float_to_half(v);
        memcpy(data + i, type == OPERAND_F16 ? (void *)&half : (void *)&v, type == OPERAND_F16 ? 2 : 4);
    }
    return data;
}

static struct buffer *side_buffer(struct side *s, uint64_t bytes, enum operand_type type)
{
    struct buffer *b = &s->buffers[s->n_buffers++];
    struct err err = { 0 };
    void *data = random_bytes(bytes, type);

    assert_ok(buffer_alloc(s->device, bytes, b, &err), &err);
    assert_ok(buffer_write(b, 0, data, bytes, &err), &err);
    free(data);
    return b;
}

static struct value side_value(struct side *s, uint32_t n_cols, enum value_rows rows)
{
    const struct tape_limits *l = tape_limits(s->tape);
    uint64_t n = rows == ROWS_STEP ? l->max_rows : l->max_outputs;
    return tape_value_bound(s->tape, n_cols, rows, side_buffer(s, n * n_cols * 4, OPERAND_F32));
}

static const struct weight *side_weight(struct side *s, enum quant q, uint32_t n_rows, uint32_t n_cols)
{
    const struct quant_info *info = quant_info(q);
    uint64_t bytes = (uint64_t)n_rows * n_cols / info->block_elements * info->block_bytes;
    unsigned char *data = malloc(bytes);
    struct err err = { 0 };

    for (uint64_t i = 0; i < bytes; i += info->block_bytes)
        bench_block(q, data + i);
    struct weight_source source = { data, bytes, n_rows, n_cols, q, WEIGHT_PRODUCT, "w" };
    struct weight *w = &s->weights[s->n_weights];
    s->data[s->n_weights++] = data;
    assert_ok(weight_create(s->device, &source, w, &err), &err);
    return w;
}

static const struct weight *side_vector(struct side *s, uint32_t n)
{
    return side_weight(s, QUANT_F32, 1, n);
}

// Rows of three sequences: a run, single rows, another run; positions after `past`.
static void fill_step(const struct shape *c, struct step *step, uint32_t most_rows, uint32_t most_outputs)
{
    uint32_t *words = (uint32_t *)step, next[SLOTS] = { c->past, c->past / 2, 3, 0 };

    memset(step, 0, step_bytes(most_rows, most_outputs));
    *step = (struct step){ .n_rows = c->rows,
                           .n_outputs = c->rows < most_outputs ? c->rows : most_outputs,
                           .max_rows = most_rows,
                           .max_outputs = most_outputs };
    for (uint32_t r = 0; r < c->rows; r++) {
        uint32_t slot = c->rows == 1 ? 0 : r < c->rows / 2 ? 1 : r < c->rows / 2 + 2 ? 2 : 0;
        words[step_at_tokens() + r] = (r * 7919 + 13) % (c->n_cols < VOCABULARY ? c->n_cols : VOCABULARY); // sample counts them
        words[step_at_positions(most_rows) + r] = next[slot]++;
        words[step_at_slots(most_rows) + r] = slot;
    }
    struct sample_params *samples = (struct sample_params *)(words + step_at_samples(most_rows, most_outputs));
    for (uint32_t i = 0; i < step->n_outputs; i++) {
        words[step_at_outputs(most_rows) + i] = c->rows - step->n_outputs + i;
        samples[i] = c->sampling;
        samples[i].seed[0] = i;
    }
}

typedef void record(struct side *s, const struct shape *c);

static void side_open(struct side *s, struct device *d, const struct shape *c, record *recording)
{
    uint32_t outputs = c->most_rows < 8 ? c->most_rows : 8;
    struct step *step = malloc(step_bytes(c->most_rows, outputs));
    struct err err = { 0 };

    bench_seed(7);
    s->device = d;
    s->tape = tape_create(
        d, (struct tape_limits){ .max_rows = c->most_rows, .max_outputs = outputs, .exact = c->exact, .gemm = c->gemm });
    fill_step(c, step, c->most_rows, outputs);
    assert_ok(buffer_alloc(d, step_bytes(c->most_rows, outputs), &s->step, &err), &err);
    assert_ok(buffer_write(&s->step, 0, step, step_bytes(c->most_rows, outputs), &err), &err);
    free(step);
    tape_label(s->tape, "test");
    recording(s, c);
    assert_ok(tape_seal(s->tape, &err), &err);
}

static void side_close(struct side *s)
{
    tape_destroy(s->tape);
    for (uint32_t i = 0; i < s->n_buffers; i++)
        buffer_release(&s->buffers[i]);
    for (uint32_t i = 0; i < s->n_weights; i++) {
        weight_release(&s->weights[i]);
        free(s->data[i]);
    }
    buffer_release(&s->step);
}

struct worst {
    double error;
};
static bool on_difference(void *arg, const struct tape_difference *d)
{
    struct worst *w = arg;
    if (!(d->error <= w->error))
        w->error = d->error;
    return true;
}

// The last buffer is the result. Poisoned, then written by the graph: it must be what the launches gave.
static void check_graph(struct side *s)
{
    struct buffer *out = &s->buffers[s->n_buffers - 1];
    unsigned char *once = malloc(out->bytes), *again = malloc(out->bytes);
    struct err err = { 0 };

    for (int i = 0; i < 2; i++) {
        memset(again, 0x7f, out->bytes);
        assert_ok(buffer_write(out, 0, again, out->bytes, &err), &err);
        assert_ok(i == 0 ? s->device->ops->play(s->device, s->tape, &s->step, 0, tape_n_commands(s->tape), &err)
                         : tape_play(s->tape, &s->step, &err),
                  &err);
        assert_ok(buffer_read(out, 0, i == 0 ? once : again, out->bytes, &err), &err);
    }
    assert_memory_equal(once, again, out->bytes);
    free(once);
    free(again);
}

// tape_diff leaves pages with scales alone: what both sides hold, as numbers.
static double page_difference(const struct side *a, const struct side *b, bool is_v)
{
    const struct buffer *buffers[2] = { is_v ? a->pages.v : a->pages.k, is_v ? b->pages.v : b->pages.k };
    const struct page_shape *shape = &a->pages.shape;
    unsigned char *bytes[2] = { malloc(buffers[0]->bytes), malloc(buffers[0]->bytes) };
    float *numbers = malloc(2 * shape->head_dim * sizeof *numbers), *other = numbers + shape->head_dim;
    double error = 0, norm = 1e-30;
    struct err err = { 0 };

    for (int i = 0; i < 2; i++)
        assert_ok(buffer_read(buffers[i], 0, bytes[i], buffers[i]->bytes, &err), &err);
    for (uint32_t i = 0; i < SLOTS * MAX_PAGES * shape->n_kv_heads * PAGE_TOKENS; i++) {
        struct page_token t = {
            shape, bytes[0], i / PAGE_TOKENS / shape->n_kv_heads, i / PAGE_TOKENS % shape->n_kv_heads, i % PAGE_TOKENS, is_v
        };
        page_read(&t, numbers);
        t.pages = bytes[1];
        page_read(&t, other);
        for (uint32_t d = 0; d < shape->head_dim; d++) {
            error += (double)(numbers[d] - other[d]) * (numbers[d] - other[d]);
            norm += (double)numbers[d] * numbers[d];
        }
    }
    free(numbers);
    free(bytes[0]);
    free(bytes[1]);
    return error / norm;
}

static void compare(const char *what, const struct shape *c, record *recording)
{
    struct side plain = { 0 }, fast = { 0 };
    struct err err = { 0 };
    struct device *cpu = cpu_open(&(struct cpu_options){ .n_threads = 0, .plain = true, .table = &cpu_table }, &err);
    struct worst w = { 0 };

    side_open(&plain, cpu, c, recording);
    side_open(&fast, gpu, c, recording);
    assert_ok(tape_diff(plain.tape, fast.tape, (const struct buffer *[]){ &plain.step, &fast.step }, on_difference, &w, &err),
              &err);
    print_message("%-9s %-7s rows %3u of %3u cols %5u%s error %.2g\n", what, quant_info(c->format)->name, c->rows, c->most_rows,
                  c->n_cols, c->exact ? " exact" : "", w.error);
    if (!(w.error <= c->limit))
        fail_msg("%s: error %g, want at most %g", what, w.error, c->limit);
    for (int v = 0; v < 2 && plain.pages.k; v++)
        if (!(page_difference(&plain, &fast, v) <= 5e-4))
            fail_msg("%s: pages of %s differ by %g", what, v ? "V" : "K", page_difference(&plain, &fast, v));
    check_graph(&fast);
    side_close(&plain);
    side_close(&fast);
    device_close(cpu);
}

static void record_matmul(struct side *s, const struct shape *c)
{
    struct value in = side_value(s, c->n_cols, ROWS_STEP),
                 add = c->bias ? side_value(s, c->n_out, ROWS_STEP) : (struct value){ 0 };
    const struct weight *w = side_weight(s, c->format, c->n_out, c->n_cols), *bias = c->bias ? side_vector(s, c->n_out) : NULL;
    op_matmul(s->tape, (struct matmul){ .out = side_value(s, c->n_out, ROWS_STEP), .in = in, .w = w, .bias = bias, .add = add });
}

static void record_gate_up(struct side *s, const struct shape *c)
{
    struct value in = side_value(s, c->n_cols, ROWS_STEP);
    const struct weight *norm = side_vector(s, c->n_cols), *gate = side_weight(s, c->format, c->n_out, c->n_cols);
    const struct weight *up = side_weight(s, c->other ? c->other : c->format, c->n_out, c->n_cols);
    op_gate_up(s->tape, (struct gate_up){ .out = side_value(s, c->n_out, ROWS_STEP),
                                          .in = in,
                                          .norm = norm,
                                          .gate = gate,
                                          .up = up,
                                          .activation = ACTIVATION_SILU,
                                          .eps = 1e-5f });
}

static uint32_t v_format(const struct shape *c)
{
    return c->kv_v ? c->kv_v : c->kv;
}

static struct buffer *page_buffer(struct side *s, const struct shape *c, const struct page_shape *shape, bool is_v)
{
    uint64_t bytes = (uint64_t)SLOTS * MAX_PAGES * c->n_kv_heads * page_head_bytes(is_v ? v_format(c) : c->kv, c->head_dim);
    struct buffer *b = side_buffer(s, bytes, OPERAND_F32);
    unsigned char *data = malloc(bytes);
    float *numbers = malloc(c->head_dim * sizeof *numbers);
    struct err err = { 0 };

    for (uint32_t i = 0; i < SLOTS * MAX_PAGES * c->n_kv_heads * PAGE_TOKENS; i++) {
        for (uint32_t d = 0; d < c->head_dim; d++)
            numbers[d] = bench_normal();
        page_write(&(struct page_token){ shape, data, i / PAGE_TOKENS / c->n_kv_heads, i / PAGE_TOKENS % c->n_kv_heads,
                                         i % PAGE_TOKENS, is_v },
                   numbers);
    }
    assert_ok(buffer_write(b, 0, data, bytes, &err), &err);
    free(numbers);
    free(data);
    return b;
}

static struct pages side_pages(struct side *s, const struct shape *c)
{
    struct page_shape shape = { c->n_kv_heads, c->head_dim, MAX_PAGES, (u16)c->kv, (u16)v_format(c) };
    struct buffer *k = page_buffer(s, c, &shape, false), *v = page_buffer(s, c, &shape, true),
                  *table = side_buffer(s, SLOTS * MAX_PAGES * 4, OPERAND_F32);
    uint32_t pages[SLOTS * MAX_PAGES];
    struct err err = { 0 };

    for (uint32_t i = 0; i < SLOTS * MAX_PAGES; i++)
        pages[i] = (i * 37 + 5) % (SLOTS * MAX_PAGES);
    assert_ok(buffer_write(table, 0, pages, sizeof pages, &err), &err);
    s->pages = (struct pages){ k, v, table, shape };
    return s->pages;
}

static void record_qkv(struct side *s, const struct shape *c)
{
    uint32_t n_q = c->n_heads * c->head_dim, n_kv = c->n_kv_heads * c->head_dim;
    struct qkv m = { .in = side_value(s, c->n_cols, ROWS_STEP),
                     .norm = side_vector(s, c->n_cols),
                     .wq = side_weight(s, c->format, n_q, c->n_cols),
                     .wk = side_weight(s, c->format, n_kv, c->n_cols),
                     .wv = side_weight(s, c->other ? c->other : c->format, n_kv, c->n_cols),
                     .bq = c->bias ? side_vector(s, n_q) : NULL,
                     .bk = c->bias ? side_vector(s, n_kv) : NULL,
                     .bv = c->bias ? side_vector(s, n_kv) : NULL,
                     .q_norm = c->head_norm ? side_vector(s, c->head_dim) : NULL,
                     .k_norm = c->head_norm ? side_vector(s, c->head_dim) : NULL,
                     .angles = side_value(s, c->head_dim, ROWS_STEP),
                     .pages = side_pages(s, c),
                     .pairs = c->pairs,
                     .eps = 1e-6f };
    m.q = side_value(s, n_q, ROWS_STEP);
    op_qkv(s->tape, m);
}

static void record_attend(struct side *s, const struct shape *c)
{
    uint32_t n_q = c->n_heads * c->head_dim;
    struct attend a = {
        .q = side_value(s, n_q, ROWS_STEP), .pages = side_pages(s, c), .scale = 1 / sqrtf((float)c->head_dim), .window = c->window
    };
    a.out = side_value(s, n_q, ROWS_STEP);
    op_attend(s->tape, a);
}

static void record_embed(struct side *s, const struct shape *c)
{
    const struct weight *table = side_weight(s, c->format, VOCABULARY, c->n_cols);
    struct buffer *log = side_buffer(s, SLOTS * 1024 * 4, OPERAND_F32);
    op_embed(s->tape,
             (struct embed){
                 .out = side_value(s, c->n_cols, ROWS_STEP), .table = table, .log = log, .log_stride = 1024, .scale = 1.5f });
}

static void record_small(struct side *s, const struct shape *c)
{
    struct value in = side_value(s, c->n_cols, ROWS_STEP), up = side_value(s, c->n_cols, ROWS_STEP),
                 n = side_value(s, c->n_cols, ROWS_STEP);
    struct value a = side_value(s, c->n_cols, ROWS_STEP), angles = side_value(s, 2 * (c->n_cols / 2), ROWS_STEP);
    op_rmsnorm(s->tape, (struct rmsnorm){ .out = n, .in = in, .scale = side_vector(s, c->n_cols), .eps = 1e-5f });
    op_activate(s->tape, (struct activate){ .out = a, .gate = n, .up = up, .activation = ACTIVATION_GELU_TANH });
    op_angles(s->tape, (struct angles){ .out = angles, .frequencies = side_vector(s, c->n_cols / 2), .scale = 1.25f });
    op_select(s->tape, (struct select){ .out = side_value(s, c->n_cols, ROWS_OUTPUT), .in = a });
}

// Every third token is allowed, and a few have a bias.
static void fill_limits(struct buffer *limits, uint32_t row, uint32_t n_tokens)
{
    uint32_t n_mask = sample_mask_words(n_tokens), at = row * sample_limits_words(n_tokens) * 4;
    struct err err = { 0 };

    for (uint32_t w = 0; w < n_mask; w++) {
        uint32_t word = 0x49249249u << (w + row) % 3;
        assert_ok(buffer_write(limits, at + w * 4, &word, 4, &err), &err);
    }
    for (uint32_t i = 0; i < 20; i++) {
        struct sample_bias bias = { (i * 7 + row) % n_tokens, i % 2 ? 1.5f : -2 };
        assert_ok(buffer_write(limits, at + n_mask * 4 + i * 8, &bias, 8, &err), &err);
    }
}

static void record_sample(struct side *s, const struct shape *c)
{
    struct value logits = side_value(s, c->n_cols, ROWS_OUTPUT);
    struct buffer *log = side_buffer(s, SLOTS * 1024 * 4, OPERAND_F32);
    uint32_t tokens[SLOTS * 1024];
    struct err err = { 0 };

    for (uint32_t i = 0; i < SLOTS * 1024; i++)
        tokens[i] = (i * 31) % c->n_cols % 50;
    assert_ok(buffer_write(log, 0, tokens, sizeof tokens, &err), &err);
    struct buffer *limits = side_buffer(s, 8 * sample_limits_words(c->n_cols) * 4, OPERAND_F32);
    for (uint32_t row = 0; row < 8; row++)
        fill_limits(limits, row, c->n_cols);
    op_sample(s->tape, (struct sample){ logits, log, 1024, side_buffer(s, 8 * 4, OPERAND_F32), limits });
}

static const enum quant formats[] = { QUANT_Q4_0,  QUANT_Q4_1, QUANT_Q5_0, QUANT_Q5_1, QUANT_Q8_0,   QUANT_Q2_K,
                                      QUANT_Q3_K,  QUANT_Q4_K, QUANT_Q5_K, QUANT_Q6_K, QUANT_IQ4_NL, QUANT_IQ4_XS,
                                      QUANT_MXFP4, QUANT_BF16, QUANT_F16,  QUANT_F32 };
enum { N_FORMATS = sizeof formats / sizeof *formats };

static const struct {
    uint32_t rows, most;
} row_counts[] = { { 1, 1 }, { 1, 16 }, { 5, 7 }, { 13, 16 }, { 33, 160 }, { 140, 300 } };
enum { N_ROW_COUNTS = sizeof row_counts / sizeof *row_counts };

static void skip_without_gpu(void)
{
    if (!gpu)
        skip();
}

static void products_of_every_format(void **state)
{
    (void)state;
    skip_without_gpu();
    for (uint32_t f = 0; f < N_FORMATS; f++)
        for (uint32_t r = 0; r < N_ROW_COUNTS; r++) {
            struct shape c = { .format = formats[f],
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

static void exact_products(void **state)
{
    (void)state;
    skip_without_gpu();
    for (uint32_t f = 0; f < N_FORMATS; f++) {
        struct shape c = { .format = formats[f],
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
                struct shape c = { .format = plain[f],
                                   .rows = row_counts[r].rows,
                                   .most_rows = row_counts[r].most,
                                   .n_cols = widths[i],
                                   .n_out = 19,
                                   .limit = 5e-5 };
                compare("matmul", &c, record_matmul);
            }
    for (uint32_t r = 0; r < N_ROW_COUNTS; r++) {
        struct shape c = { .format = QUANT_Q4_0,
                           .rows = row_counts[r].rows,
                           .most_rows = row_counts[r].most,
                           .n_cols = 1056,
                           .n_out = 1000,
                           .limit = 5e-4 };
        compare("matmul", &c, record_matmul);
    }
}

// Wide and tall enough that a block goes through several stages and every stage is filled again.
static void products_of_real_sizes(void **state)
{
    static const uint32_t sizes[][2] = { { 576, 9000 }, { 1536, 577 }, { 4096, 16000 }, { 5632, 4098 }, { 14336, 4096 } };
    static const enum quant kinds[] = { QUANT_Q4_0, QUANT_Q8_0, QUANT_BF16, QUANT_Q4_K, QUANT_Q6_K, QUANT_Q5_1 };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (uint32_t f = 0; f < sizeof kinds / sizeof *kinds; f++) {
            struct shape c = {
                .format = kinds[f], .rows = 1, .most_rows = 1, .n_cols = sizes[i][0], .n_out = sizes[i][1], .limit = 5e-4
            };
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

static void qkv_in_every_shape(void **state)
{
    (void)state;
    skip_without_gpu();
    for (uint32_t r = 0; r < N_ROW_COUNTS; r++)
        for (uint32_t i = 0; i < 8; i++) {
            struct shape c = { .format = QUANT_Q4_K,
                               .other = i & 1 ? QUANT_Q6_K : 0,
                               .rows = row_counts[r].rows,
                               .most_rows = row_counts[r].most,
                               .n_cols = 512,
                               .head_dim = 64,
                               .n_heads = 6,
                               .n_kv_heads = 2,
                               .past = 20,
                               .limit = 5e-4 };
            c.kv = i & 2 ? KV_F16 : KV_F32;
            c.pairs = i & 4 ? ROPE_ADJACENT : ROPE_HALVES;
            c.bias = i & 1;
            compare("qkv", &c, record_qkv);
            c.head_norm = true;
            compare("qkv norm", &c, record_qkv);
            c.exact = true;
            c.limit = c.kv == KV_F16 ? 1e-6 : 1e-10;
            compare("qkv", &c, record_qkv);
        }
}

static void attention_in_every_shape(void **state)
{
    static const uint32_t heads[][3] = { { 64, 6, 2 }, { 128, 8, 2 }, { 128, 4, 4 }, { 40, 3, 1 }, { 18, 2, 2 }, { 256, 16, 1 } };

    (void)state;
    skip_without_gpu();
    for (uint32_t r = 0; r < N_ROW_COUNTS; r++)
        for (uint32_t h = 0; h < 6; h++)
            for (uint32_t i = r % 2; i < 4; i += 2) {
                struct shape c = { .rows = row_counts[r].rows,
                                   .most_rows = row_counts[r].most,
                                   .head_dim = heads[h][0],
                                   .n_heads = heads[h][1],
                                   .n_kv_heads = heads[h][2],
                                   .past = i & 1 ? 250 : 0,
                                   .window = i == 3 ? 33 : 0 };
                c.kv = i & 2 ? KV_F16 : i ? KV_F16 : KV_F32;
                c.limit = c.kv == KV_F16 ? 1e-6 : 1e-10;
                c.n_cols = c.head_dim;
                compare("attend", &c, record_attend);
            }
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
        struct shape c = {
            .format = formats[f], .rows = 33, .most_rows = 40, .n_cols = 512, .n_out = 151, .gemm = GEMM_VENDOR, .limit = 5e-5
        };
        c.bias = f % 2;
        compare("vendor", &c, record_matmul);
        compare("vendor", &c, record_gate_up);
        c.other = QUANT_BF16;
        compare("vendor", &c, record_gate_up);
        c.head_dim = 64;
        c.n_heads = 6;
        c.n_kv_heads = 2;
        c.kv = KV_F16;
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
            for (uint32_t head_dim = 64; head_dim <= 128; head_dim *= 2) {
                struct shape c = { .format = QUANT_Q8_0,
                                   .rows = row_counts[r].rows,
                                   .most_rows = row_counts[r].most,
                                   .n_cols = 256,
                                   .head_dim = head_dim,
                                   .n_heads = 6,
                                   .n_kv_heads = 2,
                                   .past = 100,
                                   .kv = kinds[i][0],
                                   .kv_v = kinds[i][1],
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
        struct shape c = { .rows = row_counts[r].rows, .most_rows = row_counts[r].most, .n_cols = 322, .limit = 1e-10 };
        compare("small", &c, record_small);
    }
    for (uint32_t f = 0; f < N_FORMATS; f++) {
        struct shape c = { .format = formats[f], .rows = 9, .most_rows = 16, .n_cols = 512, .limit = 1e-13 };
        compare("embed", &c, record_embed);
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
        { .repeat_penalty = 1.3f, .penalty_window = 64, .top_p = 1, .presence_penalty = 0.2f, .frequency_penalty = 0.1f },
        { .repeat_penalty = 1, .top_p = 1, .temperature = 1 },
        { .repeat_penalty = 1, .top_p = 0.9f, .temperature = 0.7f },
        { .repeat_penalty = 1, .top_p = 1, .top_k = 40, .temperature = 1.3f },
        { .repeat_penalty = 1.1f, .penalty_window = 20, .top_p = 0.95f, .top_k = 60, .min_p = 0.05f, .temperature = 0.8f },
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
            struct shape c = { .rows = 8,
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_operations),
        cmocka_unit_test(products_of_every_format),
        cmocka_unit_test(exact_products),
        cmocka_unit_test(products_of_odd_widths),
        cmocka_unit_test(qkv_in_every_shape),
        cmocka_unit_test(attention_in_every_shape),
        cmocka_unit_test(pages_of_every_format),
        cmocka_unit_test(products_of_the_vendor),
        cmocka_unit_test(products_and_attention_of_lesser_devices),
        cmocka_unit_test(products_of_real_sizes),
        cmocka_unit_test(sampling_as_defined),
    };
    struct err err = { 0 };

    gpu = cuda_open(0, &cuda_table, &err);
    if (!gpu)
        print_message("skipped: %s\n", err.message);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    device_close(gpu);
    return failed;
}
