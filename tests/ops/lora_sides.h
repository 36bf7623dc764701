// lora_sides.h - lora on two devices, for a device's tests: see device_sides.h. A case's n_heads is the
// number of targets, n_kv_heads the ranks of the first; head_norm: rows that want logits.
#pragma once
#include "ops/device_sides.h"
#include "ops/lora/lora.h"

enum { LORA_ADAPTERS = 3 };

struct side_adapters { // of one side, whose tape points to them
    struct lora_weight targets[LORA_TARGETS];
};

// Of four sequences one has no adapter, and one has two.
static inline const struct buffer *side_scales(struct side *s)
{
    static const float scales[SLOTS][LORA_ADAPTERS] = {
        { 0, 1.5f, 0 }, { 0, 0, 0 }, { -0.5f, 0, 2 }, { 1, 1, 1 }
    };
    struct buffer *b = side_buffer(s, sizeof scales);
    struct err err = { 0 };

    assert_ok(buffer_write(b, 0, scales, sizeof scales, &err), &err);
    return b;
}

static inline struct lora_weight *side_lora(struct side *s, struct lora_weight *w, uint32_t n_out,
                                            uint32_t n_cols)
{
    uint32_t owners[64];
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

static inline void record_lora(struct side *s, const struct op_shape *c)
{
    static struct side_adapters room[2]; // the sides of a test are opened one after the other
    static uint32_t n;
    struct side_adapters *own = &room[n++ % 2];
    enum tensor_rows rows = c->head_norm ? ROWS_OUTPUT : ROWS_STEP;
    struct lora l = { .in = side_tensor(s, c->n_cols, rows) };
    const struct buffer *scales = side_scales(s);

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
        struct sides s;
        sides_open(&s, d, &c, record_lora);
        sides_compare(&s, "lora", &c);
        sides_close(&s);
    }
}
