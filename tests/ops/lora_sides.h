// lora_sides.h - lora on two devices, for a device's tests: see device_sides.h. A case's n_heads is the
// number of targets, n_kv_heads the ranks of the first; head_norm: rows that want logits. Of products that
// take adapters along window is the ranks of the first matrix, which also choose the sequence's adapters.
#pragma once
#include "ops/device_sides.h"
#include "ops/lora/lora.h"

enum { LORA_ADAPTERS = 3 };

struct side_adapters { // of one side, whose tape points to them
    struct lora_weight targets[LORA_TARGETS];
};

// Of four sequences one has no adapter, and one has two. first: those of the first sequence.
static inline const struct buffer *side_scales(struct side *s, uint32_t first)
{
    static const float scales[SLOTS][LORA_ADAPTERS] = {
        { 0, 1.5f, 0 }, { 0, 0, 0 }, { -0.5f, 0, 2 }, { 1, 1, 1 }
    };
    struct buffer *b = side_buffer(s, sizeof scales);
    struct err err = { 0 };

    for (uint32_t i = 0; i < SLOTS; i++)
        assert_ok(buffer_write(b, i * sizeof *scales, scales[(first + i) % SLOTS], sizeof *scales, &err),
                  &err);
    return b;
}

static inline struct lora_weight *side_lora(struct side *s, struct lora_weight *w, uint32_t n_out,
                                            uint32_t n_cols)
{
    uint32_t owners[512];
    struct err err = { 0 };

    for (uint32_t j = 0; j < w->n_ranks; j++)
        owners[j] = j * LORA_ADAPTERS / w->n_ranks;
    w->a = *side_weight_for(s, WEIGHT_ROWS, QUANT_F32, w->n_ranks, n_cols);
    w->b = *side_weight_for(s, WEIGHT_ROWS, QUANT_F32, w->n_ranks, n_out);
    struct buffer *b = side_buffer(s, w->n_ranks * 4ull);
    assert_ok(buffer_write(b, 0, owners, w->n_ranks * 4ull, &err), &err);
    w->owners = *b;
    return w;
}

static inline struct side_adapters *side_adapters_next(void)
{
    static struct side_adapters room[2]; // the sides of a test are opened one after the other
    static uint32_t n;
    return &room[n++ % 2];
}

static inline void record_lora(struct side *s, const struct op_shape *c)
{
    struct side_adapters *own = side_adapters_next();
    enum tensor_rows rows = c->head_norm ? ROWS_OUTPUT : ROWS_STEP;
    struct lora l = { .in = side_tensor(s, c->n_cols, rows) };
    const struct buffer *scales = side_scales(s, 0);

    for (uint32_t i = 0; i < c->n_heads; i++) {
        uint32_t n_out = c->n_out + 33 * i;
        own->targets[i] = (struct lora_weight){ .scales = scales,
                                                .n_ranks = c->n_kv_heads + 3 * i,
                                                .n_adapters = LORA_ADAPTERS };
        l.targets[i].lora = side_lora(s, &own->targets[i], n_out, c->n_cols);
        l.targets[i].out = side_tensor(s, n_out, rows);
    }
    op_lora(s->tape, l);
}

// A product's matrices [first, first + n) with adapters: of unlike ranks, and where there are three, the
// second without.
static inline void adapt_weights(struct side *s, const struct op_shape *c, uint32_t first, uint32_t n)
{
    struct side_adapters *own = side_adapters_next();
    const struct buffer *scales = side_scales(s, c->window);

    for (uint32_t i = 0; i < n; i++) {
        struct weight *w = &s->weights[first + i];
        own->targets[i] = (struct lora_weight){ .scales = scales,
                                                .n_ranks = c->window + 5 * i,
                                                .n_adapters = LORA_ADAPTERS };
        if (n < 3 || i != 1)
            w->lora = side_lora(s, &own->targets[i], w->n_rows, w->n_cols);
    }
}

static inline void record_adapted_matmul(struct side *s, const struct op_shape *c)
{
    enum tensor_rows rows = c->head_norm ? ROWS_OUTPUT : ROWS_STEP;
    struct matmul m = { .in = side_tensor(s, c->n_cols, rows),
                        .w = side_weight(s, c->format, c->n_out, c->n_cols),
                        .bias = c->bias ? side_vector(s, c->n_out) : NULL };

    m.add = c->bias ? side_tensor(s, c->n_out, rows) : m.add;
    adapt_weights(s, c, 0, 1);
    m.out = side_tensor(s, c->n_out, rows);
    op_matmul(s->tape, m);
}

static inline void record_adapted_gate_up(struct side *s, const struct op_shape *c)
{
    struct gate_up g = { .in = side_tensor(s, c->n_cols, ROWS_STEP),
                         .gate = side_weight(s, c->format, c->n_out, c->n_cols),
                         .up = side_weight(s, c->other ? c->other : c->format, c->n_out, c->n_cols),
                         .norm = side_vector(s, c->n_cols),
                         .activation = ACTIVATION_SILU,
                         .eps = 1e-5f };

    adapt_weights(s, c, 0, 2);
    g.out = side_tensor(s, c->n_out, ROWS_STEP);
    op_gate_up(s->tape, g);
}

static inline void record_adapted_qkv(struct side *s, const struct op_shape *c)
{
    uint32_t n_q = c->n_heads * c->head_dim, n_kv = c->n_kv_heads * c->head_dim;
    struct qkv m = { .in = side_tensor(s, c->n_cols, ROWS_STEP),
                     .wq = side_weight(s, c->format, n_q, c->n_cols),
                     .wk = side_weight(s, c->format, n_kv, c->n_cols),
                     .wv = side_weight(s, c->other ? c->other : c->format, n_kv, c->n_cols),
                     .norm = side_vector(s, c->n_cols),
                     .bq = c->bias ? side_vector(s, n_q) : NULL,
                     .q_norm = c->head_norm ? side_vector(s, c->head_dim) : NULL,
                     .angles = side_tensor(s, c->head_dim, ROWS_STEP),
                     .pages = side_pages(s, c),
                     .pairs = c->pairs,
                     .eps = 1e-6f };

    adapt_weights(s, c, 0, 3);
    m.q = side_tensor(s, n_q, ROWS_STEP);
    op_qkv(s->tape, m);
}

static const struct op_shape lora_shapes[] = {
    { .n_cols = 64, .n_out = 64, .n_heads = 1, .n_kv_heads = 3 },
    { .n_cols = 333, .n_out = 259, .n_heads = 3, .n_kv_heads = 7 },
    { .n_cols = 130, .n_out = 1030, .n_heads = 2, .n_kv_heads = 24 },
    { .n_cols = 5, .n_out = 1, .n_heads = 3, .n_kv_heads = 1 },
    { .n_cols = 96, .n_out = 300, .n_heads = 1, .n_kv_heads = 9, .head_norm = true },
};
static const struct {
    uint32_t rows, most, decode;
} lora_rows[] = { { 1, 1, 0 }, { 1, 16, 0 }, { 23, 30, 4 }, { 12, 12, 12 } };

enum {
    N_LORA_SHAPES = sizeof lora_shapes / sizeof *lora_shapes,
    N_LORA_CASES = N_LORA_SHAPES * sizeof lora_rows / sizeof *lora_rows,
};

static inline struct op_shape lora_case(uint32_t i)
{
    struct op_shape c = lora_shapes[i % N_LORA_SHAPES];
    uint32_t r = i / N_LORA_SHAPES;

    c.rows = lora_rows[r].rows;
    c.most_rows = lora_rows[r].most;
    c.decode = lora_rows[r].decode;
    c.limit = 1e-11;
    return c;
}

// Every shape with every number of rows, against the plain loops.
static inline void check_lora_on(struct device *d)
{
    for (uint32_t i = 0; i < N_LORA_CASES; i++) {
        struct op_shape c = lora_case(i);
        sides_check(d, "lora", &c, record_lora);
    }
}
