// trellis_sides.h - matrices of EXL3 with random codes, for the tests of the products that take them.
#pragma once
#include "ops/device_sides.h"
#include "ops/trellis/trellis.h"

// Factors of both signs near 1, and numbers near 0.02 as those of real weights.
static inline void fill_trellis(uint16_t *at, uint32_t n_in, uint32_t n_out, uint32_t bits)
{
    uint64_t n_codes = exl3_codes_bytes(n_in, n_out, bits) / 2;

    for (uint64_t i = 0; i < n_codes; i++)
        at[i] = (uint16_t)bench_random();
    for (uint32_t i = 0; i < n_in + n_out; i++) {
        float factor = 0.5f + (float)(bench_random() % 1000) / 1000;
        float sized = i < n_in ? factor : factor * 0.02f;
        at[n_codes + i] = quant_float_to_half(bench_random() & 1 ? sized : -sized);
    }
}

static inline const struct weight *side_trellis(struct side *s, const struct op_shape *c, uint32_t n_rows)
{
    uint32_t n_in = exl3_padded(c->n_cols), n_out = exl3_padded(n_rows);
    uint64_t bytes = exl3_bytes(n_in, n_out, c->bits);
    unsigned char *data = mem_alloc(bytes);
    struct err err = { 0 };

    fill_trellis((uint16_t *)(void *)data, n_in, n_out, c->bits);
    struct weight_source source = { data, bytes, n_rows, c->n_cols, c->format, WEIGHT_PRODUCT, "w" };
    struct weight *w = &s->weights[s->n_weights];
    s->data[s->n_weights++] = data;
    assert_ok(weight_create(s->device, &source, w, &err), &err);
    return w;
}

static inline void record_trellis(struct side *s, const struct op_shape *c)
{
    struct tensor in = side_tensor(s, c->n_cols, ROWS_STEP),
                  add = c->bias ? side_tensor(s, c->n_out, ROWS_STEP) : (struct tensor){ 0 };
    const struct weight *w = side_trellis(s, c, c->n_out), *bias = c->bias ? side_vector(s, c->n_out) : NULL;
    op_matmul(s->tape,
              (struct matmul){
                  .out = side_tensor(s, c->n_out, ROWS_STEP), .in = in, .w = w, .bias = bias, .add = add });
}

// Three matrices of unlike sizes, in one command or three.
static inline void record_trellis_three(struct side *s, const struct op_shape *c, bool joined)
{
    const uint32_t n_out[] = { c->n_out, c->n_out / 2 + 1, 40 };
    struct tensor in = side_tensor(s, c->n_cols, ROWS_STEP);
    struct matmul m[3];

    for (uint32_t i = 0; i < 3; i++)
        m[i] = (struct matmul){ .out = side_tensor(s, n_out[i], ROWS_STEP),
                                .in = in,
                                .w = side_trellis(s, c, n_out[i]),
                                .bias = i == 1 ? side_vector(s, n_out[i]) : NULL,
                                .add = i == 2 ? side_tensor(s, n_out[i], ROWS_STEP) : (struct tensor){ 0 } };
    if (joined)
        matmul_record_joined(s->tape, m, 3);
    for (uint32_t i = 0; i < 3 && !joined; i++)
        matmul_record_plain(s->tape, m[i]);
}
static inline void record_trellis_joined(struct side *s, const struct op_shape *c)
{
    record_trellis_three(s, c, true);
}
static inline void record_trellis_apart(struct side *s, const struct op_shape *c)
{
    record_trellis_three(s, c, false);
}

// The two products joined, the rest in parts.
static inline void record_trellis_gate_up(struct side *s, const struct op_shape *c)
{
    struct tensor in = side_tensor(s, c->n_cols, ROWS_STEP);
    const struct weight *norm = side_vector(s, c->n_cols), *gate = side_trellis(s, c, c->n_out),
                        *up = side_trellis(s, c, c->n_out);
    op_gate_up(s->tape, (struct gate_up){ .out = side_tensor(s, c->n_out, ROWS_STEP),
                                          .in = in,
                                          .norm = norm,
                                          .gate = gate,
                                          .up = up,
                                          .activation = ACTIVATION_SILU,
                                          .eps = 1e-5f });
}
