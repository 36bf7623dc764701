// device_sides.h - one operation recorded alike on two devices, for tape_diff: the rig of a device's tests
// against the plain loops.
//
// A case is a struct op_shape and a function that records the operation on one side. Both sides draw the same
// random numbers. sides_compare measures what lies between the results; what else a device must prove
// (graphs, bad numbers) its test asks of the open sides.
#pragma once
#include "device/step.h"
#include "ops/activate/activate.h"
#include "ops/angles/angles.h"
#include "ops/attend/attend.h"
#include "ops/attend_block/attend_block.h"
#include "ops/embed/embed.h"
#include "ops/gate_up/gate_up.h"
#include "ops/matmul/matmul.h"
#include "ops/op_harness.h"
#include "ops/qkv/qkv.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rmsnorm_sum/rmsnorm_sum.h"
#include "ops/sample/sample.h"
#include "ops/select/select.h"
#include "ops/temper/temper.h"
#include "quant/row_scales.h"

struct op_shape { // of one case
    uint32_t rows, most_rows, n_cols, n_out, head_dim, n_heads, n_kv_heads;
    uint32_t past;   // tokens before the first row
    uint32_t decode; // the first rows are each of another slot than their neighbours
    uint32_t kept;   // of states: those behind every so many rows; 0: behind two of three
    enum quant format, other;
    enum kv_format k_format, v_format;
    enum rope_pairs pairs;
    uint32_t window;
    bool exact, invariant, bias, head_norm; // bias: of attention, a sink for each head
    enum gemm gemm;
    struct sample_params sampling;
    double limit;
    uint32_t bits;   // of EXL3
    bool row_scales; // of Q8_0: all blocks of a row have one scale
    bool far_rows;   // those of an embedding may lie in the host's memory
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

#if !defined SIDES_PAGES // of a sequence
#define SIDES_PAGES 40
#endif
enum { SLOTS = 4, MAX_PAGES = SIDES_PAGES, VOCABULARY = 47, RESULTS_AT = 3 };

static struct buffer *side_buffer(struct side *s, uint64_t bytes)
{
    struct buffer *b = &s->buffers[s->n_buffers++];
    float *numbers = mem_alloc(bytes);
    struct err err = { 0 };

    for (uint64_t i = 0; i < bytes / 4; i++)
        numbers[i] = bench_normal();
    assert_ok(buffer_alloc(s->device, bytes, b, &err), &err);
    assert_ok(buffer_write(b, 0, numbers, bytes, &err), &err);
    mem_free(numbers);
    return b;
}

static struct tensor side_tensor(struct side *s, uint32_t n_cols, enum tensor_rows rows)
{
    const struct tape_limits *l = tape_limits(s->tape);
    uint64_t n = rows == ROWS_STEP ? l->max_rows : l->max_outputs;
    return tape_tensor_bound(s->tape, n_cols, rows, side_buffer(s, n * n_cols * 4));
}

static const struct weight *side_weight_for(struct side *s, enum weight_use use, enum quant q,
                                            uint32_t n_rows, uint32_t n_cols)
{
    const struct quant_info *info = quant_info(q);
    uint64_t bytes = (uint64_t)n_rows * n_cols / info->block_elements * info->block_bytes;
    unsigned char *data = mem_alloc(bytes);
    struct err err = { 0 };

    for (uint64_t i = 0; i < bytes; i += info->block_bytes)
        bench_block(q, data + i);
    for (uint32_t r = 0; use == WEIGHT_ROW_SCALES && r < n_rows; r++)
        quant_row_scales(data + bytes / n_rows * r, data + bytes / n_rows * r, n_cols);
    struct weight_source source = { data, bytes, n_rows, n_cols, q, use, "w" };
    struct weight *w = &s->weights[s->n_weights];
    s->data[s->n_weights++] = data;
    assert_ok(weight_create(s->device, &source, w, &err), &err);
    return w;
}

static const struct weight *side_weight(struct side *s, enum quant q, uint32_t n_rows, uint32_t n_cols)
{
    return side_weight_for(s, WEIGHT_PRODUCT, q, n_rows, n_cols);
}

// A matrix of the case's format.
static inline const struct weight *side_matrix(struct side *s, const struct op_shape *c, uint32_t n_rows,
                                               uint32_t n_cols)
{
    return side_weight_for(s, c->row_scales ? WEIGHT_ROW_SCALES : WEIGHT_PRODUCT, c->format, n_rows, n_cols);
}

static const struct weight *side_vector(struct side *s, uint32_t n)
{
    return side_weight_for(s, WEIGHT_ROWS, QUANT_F32, 1, n);
}

// Decode rows, then rows of three sequences: a run, two rows, another run; positions after `past`. Where rows
// are sampled each has a sequence of its own, since what one draws is the other's past.
static uint32_t slot_of_row(const struct op_shape *c, uint32_t r)
{
    uint32_t n = c->rows - c->decode, i = r - c->decode;

    if (c->sampling.top_p > 0)
        return r;
    if (r < c->decode)
        return r % SLOTS;
    return n == 1 ? 0 : i < n / 2 ? 1 : i < n / 2 + 2 ? 2 : 0;
}

// Every sequence of neighbouring rows has a state to go on from, or begins, and leaves one behind its last
// row and behind others, as drafted tokens do: rows of states in the sequences' order, then, from c->rows on,
// of the rows. Where some go on, every other one leaves its first state where it found one.
static void fill_states(const struct op_shape *c, uint32_t *words, uint32_t most_rows)
{
    for (uint32_t r = 0, sequence = 0; r < c->rows; r++) {
        bool begins = r == 0 || slot_of_row(c, r) != slot_of_row(c, r - 1),
             ends = r + 1 == c->rows || slot_of_row(c, r) != slot_of_row(c, r + 1);
        words[step_at_states_from(most_rows) + r] = !begins ? STATE_NEXT : c->past ? sequence : STATE_ZERO;
        bool keeps = ends || (c->kept ? r % c->kept == 0 : r % 3 != 0);
        words[step_at_states_to(most_rows) + r] = begins && !ends && c->past && sequence % 2 ? sequence
                                                  : keeps                                    ? c->rows + r
                                                                                             : STATE_NONE;
        sequence += ends;
    }
}

static void fill_step(const struct op_shape *c, struct step *step, uint32_t most_rows, uint32_t most_outputs)
{
    uint32_t *words = (uint32_t *)step, next[SLOTS] = { c->past, c->past / 2, 3, 0 };

    memset(step, 0, step_bytes(most_rows, most_outputs));
    *step = (struct step){ .n_rows = c->rows,
                           .n_outputs = c->rows < most_outputs ? c->rows : most_outputs,
                           .max_rows = most_rows,
                           .max_outputs = most_outputs,
                           .results_at = RESULTS_AT };
    for (uint32_t r = 0; r < c->rows; r++) {
        uint32_t slot = slot_of_row(c, r);
        words[step_at_tokens() + r] = (r * 7919 + 13) % VOCABULARY;
        words[step_at_positions(most_rows) + r] = next[slot]++;
        words[step_at_slots(most_rows) + r] = slot;
    }
    fill_states(c, words, most_rows);
    struct sample_params *samples =
        (struct sample_params *)(words + step_at_samples(most_rows, most_outputs));
    for (uint32_t i = 0; i < step->n_outputs; i++) {
        words[step_at_outputs(most_rows) + i] = c->rows - step->n_outputs + i;
        samples[i] = c->sampling;
        samples[i].seed[0] = i;
    }
}

typedef void record(struct side *s, const struct op_shape *c);

static void side_open(struct side *s, struct device *d, const struct op_shape *c, record *recording)
{
    uint32_t outputs = c->decode > 8 ? c->decode : c->most_rows < 8 ? c->most_rows : 8;
    struct step *step = mem_alloc(step_bytes(c->most_rows, outputs));
    struct err err = { 0 };

    bench_seed(7);
    s->device = d;
    s->tape = tape_create(d, (struct tape_limits){ .max_rows = c->most_rows,
                                                   .max_outputs = outputs,
                                                   .exact = c->exact,
                                                   .invariant = c->invariant,
                                                   .gemm = c->gemm });
    fill_step(c, step, c->most_rows, outputs);
    assert_ok(buffer_alloc(d, step_bytes(c->most_rows, outputs), &s->step, &err), &err);
    assert_ok(buffer_write(&s->step, 0, step, step_bytes(c->most_rows, outputs), &err), &err);
    mem_free(step);
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
        mem_free(s->data[i]);
    }
    buffer_release(&s->step);
}

static inline void record_matmul(struct side *s, const struct op_shape *c)
{
    struct tensor in = side_tensor(s, c->n_cols, ROWS_STEP),
                  add = c->bias ? side_tensor(s, c->n_out, ROWS_STEP) : (struct tensor){ 0 };
    const struct weight *w = side_weight(s, c->format, c->n_out, c->n_cols),
                        *bias = c->bias ? side_vector(s, c->n_out) : NULL;
    op_matmul(s->tape,
              (struct matmul){
                  .out = side_tensor(s, c->n_out, ROWS_STEP), .in = in, .w = w, .bias = bias, .add = add });
}

// Two products where there is another format, three with a bias.
static inline void record_matmul_normed(struct side *s, const struct op_shape *c)
{
    struct matmul_normed m = { .in = side_tensor(s, c->n_cols, ROWS_STEP),
                               .norm = side_vector(s, c->n_cols),
                               .w = side_weight(s, c->format, c->n_out, c->n_cols),
                               .eps = 1e-5f };
    if (c->other) {
        m.v = side_weight(s, c->other, c->n_out + 6, c->n_cols);
        m.more = side_tensor(s, c->n_out + 6, ROWS_STEP);
        m.u = c->bias ? side_weight(s, c->format, 26, c->n_cols) : NULL;
        if (m.u)
            m.last = side_tensor(s, 26, ROWS_STEP);
    }
    m.out = side_tensor(s, c->n_out, ROWS_STEP);
    op_matmul_normed(s->tape, m);
}

static inline void record_gate_up(struct side *s, const struct op_shape *c)
{
    struct tensor in = side_tensor(s, c->n_cols, ROWS_STEP);
    const struct weight *norm = side_vector(s, c->n_cols),
                        *gate = side_weight(s, c->format, c->n_out, c->n_cols);
    const struct weight *up = side_weight(s, c->other ? c->other : c->format, c->n_out, c->n_cols);
    op_gate_up(s->tape, (struct gate_up){ .out = side_tensor(s, c->n_out, ROWS_STEP),
                                          .in = in,
                                          .norm = norm,
                                          .gate = gate,
                                          .up = up,
                                          .activation = ACTIVATION_SILU,
                                          .eps = 1e-5f });
}

// Pages hold random numbers up to the last token of the step; what lies behind is NaN, which nobody may read.
static struct buffer *side_page_buffer(struct side *s, const struct op_shape *c,
                                       const struct page_shape *shape, bool is_v, const uint32_t *table)
{
    uint64_t bytes = (uint64_t)SLOTS * MAX_PAGES * c->n_kv_heads *
                     page_head_bytes(is_v ? shape->v_format : shape->k_format, c->head_dim);
    struct buffer *b = &s->buffers[s->n_buffers++];
    unsigned char *data = mem_alloc(bytes);
    struct err err = { 0 };
    float numbers[1024];

    memset(data, 0xff, bytes);
    for (uint32_t i = 0; i < SLOTS * (c->past + c->rows) * c->n_kv_heads; i++) {
        uint32_t head = i % c->n_kv_heads, slot = i / c->n_kv_heads % SLOTS,
                 position = i / c->n_kv_heads / SLOTS;
        struct page_token t = {
            shape, data, table[slot * MAX_PAGES + position / PAGE_TOKENS], head, position % PAGE_TOKENS, is_v
        };
        for (uint32_t d = 0; d < c->head_dim; d++)
            numbers[d] = bench_normal();
        page_write(&t, numbers);
    }
    assert_ok(buffer_alloc(s->device, bytes, b, &err), &err);
    assert_ok(buffer_write(b, 0, data, bytes, &err), &err);
    mem_free(data);
    return b;
}

static struct pages side_pages(struct side *s, const struct op_shape *c)
{
    struct page_shape shape = { c->n_kv_heads, c->head_dim, MAX_PAGES, (u16)c->k_format, (u16)c->v_format };
    uint32_t numbers[SLOTS * MAX_PAGES];
    struct err err = { 0 };

    for (uint32_t i = 0; i < SLOTS * MAX_PAGES; i++)
        numbers[i] = (i * 37 + 5) % (SLOTS * MAX_PAGES);
    struct buffer *k = side_page_buffer(s, c, &shape, false, numbers),
                  *v = side_page_buffer(s, c, &shape, true, numbers);
    struct buffer *table = side_buffer(s, sizeof numbers);
    assert_ok(buffer_write(table, 0, numbers, sizeof numbers, &err), &err);
    s->pages = (struct pages){ k, v, table, shape };
    return s->pages;
}

static inline void record_qkv(struct side *s, const struct op_shape *c)
{
    uint32_t n_q = c->n_heads * c->head_dim, n_kv = c->n_kv_heads * c->head_dim;
    struct qkv m = { .in = side_tensor(s, c->n_cols, ROWS_STEP),
                     .norm = side_vector(s, c->n_cols),
                     .wq = side_weight(s, c->format, n_q, c->n_cols),
                     .wk = side_weight(s, c->format, n_kv, c->n_cols),
                     .wv = side_weight(s, c->other ? c->other : c->format, n_kv, c->n_cols),
                     .bq = c->bias ? side_vector(s, n_q) : NULL,
                     .bk = c->bias ? side_vector(s, n_kv) : NULL,
                     .bv = c->bias ? side_vector(s, n_kv) : NULL,
                     .q_norm = c->head_norm ? side_vector(s, c->head_dim) : NULL,
                     .k_norm = c->head_norm ? side_vector(s, c->head_dim) : NULL,
                     .angles = side_tensor(s, c->head_dim, ROWS_STEP),
                     .pages = side_pages(s, c),
                     .pairs = c->pairs,
                     .eps = 1e-6f };
    m.q = side_tensor(s, n_q, ROWS_STEP);
    op_qkv(s->tape, m);
}

static inline void record_rope_store(struct side *s, const struct op_shape *c)
{
    uint32_t n_q = c->n_heads * c->head_dim, n_kv = c->n_kv_heads * c->head_dim;
    op_rope_store(s->tape, (struct rope_store){ .q = side_tensor(s, n_q, ROWS_STEP),
                                                .k = side_tensor(s, n_kv, ROWS_STEP),
                                                .v = side_tensor(s, n_kv, ROWS_STEP),
                                                .q_norm = c->head_norm ? side_vector(s, c->head_dim) : NULL,
                                                .k_norm = c->head_norm ? side_vector(s, c->head_dim) : NULL,
                                                .angles = side_tensor(s, c->head_dim - 4, ROWS_STEP),
                                                .pages = side_pages(s, c),
                                                .pairs = c->pairs,
                                                .eps = 1e-6f });
}

static inline void record_attend(struct side *s, const struct op_shape *c)
{
    uint32_t n_q = c->n_heads * c->head_dim;
    struct attend a = { .q = side_tensor(s, n_q, ROWS_STEP),
                        .pages = side_pages(s, c),
                        .scale = 1 / sqrtf((float)c->head_dim),
                        .window = c->window,
                        .sinks = c->bias ? side_vector(s, c->n_heads) : NULL };
    a.out = side_tensor(s, n_q, ROWS_STEP);
    op_attend(s->tape, a);
}

// Attention, and the product behind it, which alone reads its result, unless that is kept: where n_cols is
// set.
static inline void record_attend_out(struct side *s, const struct op_shape *c)
{
    uint32_t n_q = c->n_heads * c->head_dim;
    struct attend a = { .q = side_tensor(s, n_q, ROWS_STEP),
                        .pages = side_pages(s, c),
                        .scale = 1 / sqrtf((float)c->head_dim),
                        .window = c->window,
                        .sinks = c->bias ? side_vector(s, c->n_heads) : NULL };
    const struct weight *w = side_weight(s, c->format, c->n_out, n_q);
    struct tensor x = side_tensor(s, c->n_out, ROWS_STEP);

    a.out = c->n_cols ? side_tensor(s, n_q, ROWS_STEP) : tape_tensor(s->tape, n_q, ROWS_STEP);
    op_attend(s->tape, a);
    op_matmul(s->tape, (struct matmul){ .out = x, .in = a.out, .w = w, .add = x });
}

// A layer's attention from the norm to the residual.
static inline void record_attend_block(struct side *s, const struct op_shape *c)
{
    uint32_t n_q = c->n_heads * c->head_dim, n_kv = c->n_kv_heads * c->head_dim;
    struct attend_block b = { .qkv = { .norm = side_vector(s, c->n_cols),
                                       .wq = side_weight(s, c->format, n_q, c->n_cols),
                                       .wk = side_weight(s, c->format, n_kv, c->n_cols),
                                       .wv = side_weight(s, c->other ? c->other : c->format, n_kv, c->n_cols),
                                       .bq = c->bias ? side_vector(s, n_q) : NULL,
                                       .q_norm = c->head_norm ? side_vector(s, c->head_dim) : NULL,
                                       .k_norm = c->head_norm ? side_vector(s, c->head_dim) : NULL,
                                       .angles = side_tensor(s, c->head_dim - c->n_out, ROWS_STEP),
                                       .pages = side_pages(s, c),
                                       .pairs = c->pairs,
                                       .eps = 1e-6f },
                              .attend = { .scale = 1 / sqrtf((float)c->head_dim), .window = c->window },
                              .out = { .w = side_weight(s, c->format, c->n_cols, n_q) } };

    b.qkv.q = b.attend.q = tape_tensor(s->tape, n_q, ROWS_STEP);
    b.attend.out = b.out.in = tape_tensor(s->tape, n_q, ROWS_STEP);
    b.attend.pages = b.qkv.pages;
    b.qkv.in = b.out.add = b.out.out = side_tensor(s, c->n_cols, ROWS_STEP);
    assert_true(op_attend_block(s->tape, &b));
}

// b is normalised where there is a bias.
static inline void record_rmsnorm_sum(struct side *s, const struct op_shape *c)
{
    struct rmsnorm_sum n = { .a = side_tensor(s, c->n_cols, ROWS_STEP),
                             .b = side_tensor(s, c->n_cols, ROWS_STEP),
                             .a_scale = side_vector(s, c->n_cols),
                             .b_scale = c->bias ? side_vector(s, c->n_cols) : NULL,
                             .scale = side_vector(s, c->n_cols),
                             .add = side_tensor(s, c->n_cols, ROWS_STEP),
                             .eps = 1e-6f,
                             .gain = 0.7f };
    n.out = side_tensor(s, c->n_cols, ROWS_STEP);
    op_rmsnorm_sum(s->tape, n);
}

static inline void record_embed(struct side *s, const struct op_shape *c)
{
    const struct weight *table =
        side_weight_for(s, c->far_rows ? WEIGHT_FAR_ROWS : WEIGHT_ROWS, c->format, VOCABULARY, c->n_cols);
    struct buffer *history = side_buffer(s, SLOTS * 1024 * 4);
    op_embed(s->tape, (struct embed){ .out = side_tensor(s, c->n_cols, ROWS_STEP),
                                      .table = table,
                                      .history = history,
                                      .history_stride = 1024,
                                      .scale = 1.5f });
}

static inline void record_small(struct side *s, const struct op_shape *c)
{
    struct tensor in = side_tensor(s, c->n_cols, ROWS_STEP), up = side_tensor(s, c->n_cols, ROWS_STEP),
                  n = side_tensor(s, c->n_cols, ROWS_STEP);
    struct tensor a = side_tensor(s, c->n_cols, ROWS_STEP),
                  angles = side_tensor(s, 2 * (c->n_cols / 2), ROWS_STEP);
    op_rmsnorm(s->tape,
               (struct rmsnorm){ .out = n, .in = in, .scale = side_vector(s, c->n_cols), .eps = 1e-5f });
    op_rmsnorm(s->tape, (struct rmsnorm){ .out = n,
                                          .in = n,
                                          .add = up,
                                          .scale = c->n_cols % 2 ? NULL : side_vector(s, c->n_cols / 2),
                                          .n_groups = c->n_cols % 2 ? 1 : 2,
                                          .eps = 1e-5f,
                                          .gain = 0.75f });
    op_temper(s->tape, (struct temper){ .out = n, .in = n, .beta = 0.1f, .period = 7 });
    struct tensor wide = side_tensor(s, c->n_cols + 5, ROWS_STEP);
    op_activate(
        s->tape,
        (struct activate){
            .out = n, .gate = n, .up = wide, .up_first = 3, .activation = ACTIVATION_CAP, .limit = 1.5f });
    op_activate(s->tape,
                (struct activate){ .out = a, .gate = n, .up = up, .activation = ACTIVATION_GELU_TANH });
    op_angles(s->tape,
              (struct angles){ .out = angles, .frequencies = side_vector(s, c->n_cols / 2), .scale = 1.25f });
    struct tensor selected = side_tensor(s, c->n_cols, ROWS_OUTPUT);
    op_select(s->tape, (struct select){ .out = selected, .in = a });
    op_activate(
        s->tape,
        (struct activate){ .out = selected, .gate = selected, .activation = ACTIVATION_CAP, .limit = 0.5f });
}

// A mask that allows two of three tokens, and biases, two of them for one token.
static struct buffer *side_mask_bias(struct side *s, uint32_t n_tokens, uint32_t n_biases)
{
    uint32_t stride = sample_mask_bias_words(n_tokens), n_outputs = tape_limits(s->tape)->max_outputs;
    struct buffer *b = &s->buffers[s->n_buffers++];
    uint32_t *words = mem_alloc((size_t)n_outputs * stride * 4);
    struct err err = { 0 };

    memset(words, 0, (size_t)n_outputs * stride * 4);
    for (uint32_t i = 0; i < n_outputs; i++) {
        struct sample_bias *biases = (struct sample_bias *)(words + i * stride + sample_mask_words(n_tokens));
        for (uint32_t t = 0; t < n_tokens; t++)
            words[i * stride + t / 32] |= (uint32_t)(bench_random() % 3 > 0) << t % 32;
        for (uint32_t j = 0; j < n_biases; j++)
            biases[j] = (struct sample_bias){ j == 1 ? biases[0].token : bench_random() % n_tokens,
                                              3 * bench_normal() };
    }
    assert_ok(buffer_alloc(s->device, (uint64_t)n_outputs * stride * 4, b, &err), &err);
    assert_ok(buffer_write(b, 0, words, (uint64_t)n_outputs * stride * 4, &err), &err);
    mem_free(words);
    return b;
}

static inline void record_sample(struct side *s, const struct op_shape *c)
{
    struct tensor logits = side_tensor(s, c->n_cols, ROWS_OUTPUT);
    struct buffer *history = side_buffer(s, SLOTS * 1024 * 4);
    uint32_t tokens[SLOTS * 1024];
    struct err err = { 0 };

    for (uint32_t i = 0; i < SLOTS * 1024; i++)
        tokens[i] = (i * 31) % c->n_cols % 50;
    assert_ok(buffer_write(history, 0, tokens, sizeof tokens, &err), &err);
    bool limited = c->sampling.n_biases || c->sampling.flags & SAMPLE_MASKED;
    struct buffer *mask_bias = limited ? side_mask_bias(s, c->n_cols, c->sampling.n_biases) : NULL;
    op_sample(s->tape, (struct sample){ .logits = logits,
                                        .history = history,
                                        .history_stride = 1024,
                                        .results = side_buffer(s, (RESULTS_AT + 8) * 4),
                                        .mask_bias = mask_bias });
}

struct sides { // the same on the plain loops and on the device in question
    struct device *cpu;
    struct side plain, fast;
};

static void sides_open(struct sides *s, struct device *d, const struct op_shape *c, record *recording)
{
    struct err err = { 0 };

    *s = (struct sides){ .cpu = cpu_open(&(struct cpu_options){ .plain = true, .table = &cpu_table }, &err) };
    side_open(&s->plain, s->cpu, c, recording);
    side_open(&s->fast, d, c, recording);
}

static void sides_close(struct sides *s)
{
    side_close(&s->plain);
    side_close(&s->fast);
    device_close(s->cpu);
}

static double worse(double a, double b) // an error that is no number is the worst
{
    return a >= b || isnan(a) ? a : b;
}

static bool on_difference(void *arg, const struct tape_difference *d)
{
    double *worst = arg;
    *worst = worse(*worst, d->error);
    return true;
}

// What a side's pages of K or V hold: [pages * heads * tokens of a page, head_dim].
static float *decoded_pages(const struct side *s, bool is_v, size_t *n)
{
    const struct page_shape *shape = &s->pages.shape;
    const struct buffer *b = is_v ? s->pages.v : s->pages.k;
    uint32_t tokens = SLOTS * MAX_PAGES * shape->n_kv_heads * PAGE_TOKENS;
    unsigned char *data = mem_alloc(b->bytes);
    float *numbers = mem_alloc_array((size_t)tokens * shape->head_dim, sizeof *numbers);
    struct err err = { 0 };

    *n = (size_t)tokens * shape->head_dim;
    assert_ok(buffer_read(b, 0, data, b->bytes, &err), &err);
    for (uint32_t i = 0; i < tokens; i++) {
        uint32_t head = i / PAGE_TOKENS % shape->n_kv_heads, page = i / PAGE_TOKENS / shape->n_kv_heads;
        page_read(&(struct page_token){ shape, data, page, head, i % PAGE_TOKENS, is_v },
                  numbers + (size_t)i * shape->head_dim);
    }
    mem_free(data);
    return numbers;
}

// tape_diff leaves pages with scales between the numbers alone.
static double pages_difference(const struct sides *s, bool is_v)
{
    size_t n = 0;
    float *plain = decoded_pages(&s->plain, is_v, &n), *fast = decoded_pages(&s->fast, is_v, &n);
    double error = bench_error(plain, fast, n);

    mem_free(plain);
    mem_free(fast);
    return error;
}

static void sides_compare(struct sides *s, const char *what, const struct op_shape *c)
{
    const struct buffer *steps[2] = { &s->plain.step, &s->fast.step };
    double worst = 0;
    struct err err = { 0 };

    assert_ok(tape_diff(s->plain.tape, s->fast.tape, steps, on_difference, &worst, &err), &err);
    for (int v = 0; v < 2 && (v ? s->plain.pages.v : s->plain.pages.k); v++)
        worst = worse(worst, pages_difference(s, v));
    if (!(worst <= c->limit))
        fail_msg("%s %s, %u rows of %u, %u columns%s: error %.2g, at most %.0g", what,
                 quant_info(c->format)->name, c->rows, c->most_rows, c->n_cols, c->exact ? ", exact" : "",
                 worst, c->limit);
}

static inline void sides_check(struct device *d, const char *what, const struct op_shape *c,
                               record *recording)
{
    struct sides s;

    sides_open(&s, d, c, recording);
    sides_compare(&s, what, c);
    sides_close(&s);
}
