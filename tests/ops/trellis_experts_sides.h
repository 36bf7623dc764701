// trellis_experts_sides.h - mixtures whose matrices are EXL3 with random codes, for the tests of the products
// that take them: see device_sides.h.
#pragma once
#include "ops/experts_sides.h"
#include "ops/trellis_experts/trellis_experts.h"
#include "ops/trellis_sides.h"

// A stack of n matrices [n_rows, n_cols].
static inline const struct weight *side_trellis_stack(struct side *s, const struct op_shape *c, uint32_t n,
                                                      uint32_t n_rows, uint32_t n_cols)
{
    uint32_t n_in = exl3_padded(n_cols), n_out = exl3_padded(n_rows);
    uint64_t bytes = exl3_bytes(n_in, n_out, c->bits);
    unsigned char *data = mem_alloc(n * bytes);
    struct err err = { 0 };

    for (uint32_t i = 0; i < n; i++)
        fill_trellis((uint16_t *)(void *)(data + i * bytes), n_in, n_out, c->bits);
    struct weight_source source = { data, n * bytes, n * n_rows, n_cols, c->format, WEIGHT_PRODUCT, "w" };
    struct weight *w = &s->weights[s->n_weights];
    s->data[s->n_weights++] = data;
    assert_ok(weight_create(s->device, &source, w, &err), &err);
    return w;
}

// c: n_cols of the residual stream, n_out hidden numbers. Up has one bit less than gate where that is more
// than 3 and c->other is set, and down another codebook.
static inline void record_trellis_experts(struct side *s, const struct op_shape *c)
{
    const struct experts_shape *e = &experts_shape;
    struct op_shape up = *c, down = *c;

    if (c->other) {
        up.bits -= c->bits > 3;
        down.format = c->other;
    }
    struct experts_up x = { .in = side_tensor(s, c->n_cols, ROWS_STEP),
                            .ids = side_ids(s),
                            .gate = side_trellis_stack(s, c, e->n_experts, c->n_out, c->n_cols),
                            .up = side_trellis_stack(s, &up, e->n_experts, c->n_out, c->n_cols),
                            .n_experts = e->n_experts,
                            .activation = e->activation };
    struct experts_down y = { .ids = x.ids,
                              .weights = side_tensor(s, e->n_slots + 1, ROWS_STEP),
                              .down = side_trellis_stack(s, &down, e->n_experts, c->n_cols, c->n_out),
                              .add = e->alone ? (struct tensor){ 0 } : side_tensor(s, c->n_cols, ROWS_STEP),
                              .n_experts = e->n_experts };
    if (e->n_shared) {
        x.shared_gate = side_trellis_stack(s, &up, 1, e->n_shared, c->n_cols);
        x.shared_up = side_trellis_stack(s, c, 1, e->n_shared, c->n_cols);
        y.shared = side_trellis_stack(s, &down, 1, c->n_cols, e->n_shared);
    }
    x.out = y.in = tape_tensor(s->tape, experts_hidden_cols(e->n_slots, c->n_out, e->n_shared), ROWS_STEP);
    y.out = side_tensor(s, c->n_cols, ROWS_STEP);
    op_trellis_experts(s->tape, &x, &y);
}
