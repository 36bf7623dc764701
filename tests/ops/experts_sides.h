// experts_sides.h - the operations of experts on two devices, for a device's tests: see device_sides.h.
#pragma once
#include "ops/device_sides.h"
#include "ops/moe/moe.h"

struct experts_shape { // what struct op_shape lacks
    uint32_t n_experts, n_slots, n_shared;
    struct route_rule rule;
    enum quant shared;
    float limit;
    bool select_bias, shared_gate, one_for_all; // the rows choose alike
    bool expert_scale, alone;                   // nothing is added to the sum
    bool own_norm, biases;                      // of the experts in one operation
    float gain;
    enum activation activation;
};
static struct experts_shape experts_shape; // of the case that is being recorded

static const struct experts_shape routers[] = {
    { .n_experts = 128, .n_slots = 8, .rule = { ROUTE_SOFTMAX, 1, 1, ROUTE_BEST, 1, 0, 1 } }, // Qwen3-30B-A3B
    { .n_experts = 64,
      .n_slots = 8,
      .rule = { ROUTE_SOFTMAX, 1, 1, ROUTE_BEST, 0, 0, 1 },
      .shared_gate = true }, // OLMoE; Qwen2's gate
    { .n_experts = 32, .n_slots = 4, .rule = { ROUTE_CHOSEN, 1, 1, ROUTE_BEST, 0, 0, 1 } }, // gpt-oss
    { .n_experts = 64,
      .n_slots = 4,
      .rule = { ROUTE_SIGMOID, 1, 1, ROUTE_TWO_BEST, 1, 1e-20f, 1.8f },
      .select_bias = true }, // GLM-4.7-Flash
    { .n_experts = 256,
      .n_slots = 8,
      .rule = { ROUTE_SIGMOID, 8, 4, ROUTE_TWO_BEST, 1, 1e-20f, 2.5f },
      .select_bias = true },
    { .n_experts = 160, .n_slots = 6, .rule = { ROUTE_SOFTMAX, 8, 3, ROUTE_BEST, 0, 0, 16 } },
    { .n_experts = 257,
      .n_slots = 32,
      .rule = { ROUTE_SOFTMAX, 1, 1, ROUTE_BEST, 1, 1e-12f, 1 },
      .select_bias = true },
    { .n_experts = 1024, .n_slots = 3, .rule = { ROUTE_SIGMOID, 512, 7, ROUTE_BEST, 0, 0, 1 } },
    { .n_experts = 1, .n_slots = 1, .rule = { ROUTE_SOFTMAX, 1, 1, ROUTE_BEST, 1, 0, 1 } },
    { .n_experts = 128,
      .n_slots = 8,
      .rule = { ROUTE_SOFTMAX, 1, 1, ROUTE_BEST, 1, 0, 1 },
      .expert_scale = true,
      .gain = 0.3f }, // Gemma 4
    { .n_experts = 33, .n_slots = 32, .rule = { ROUTE_CHOSEN, 1, 1, ROUTE_BEST, 0, 0, 1 } },
};
enum { N_ROUTERS = sizeof routers / sizeof *routers };

// A router's norm, so small that logits are about 1, as trained ones are: n_cols products of random signs add
// up to the square root of that. It matters because a weight's relative error is its logit's absolute one, by
// exp. The plain loop adds products of size p in turn, to sums of p sqrt(k), each rounded by 2^-25 of that:
// together 2^-25 p n_cols / sqrt(2), here 1e-6 of 2,048 columns, squared 1e-12.
static const struct weight *side_router_norm(struct side *s, uint32_t n_cols)
{
    float *numbers = mem_alloc_array(n_cols, sizeof *numbers);
    struct weight *w = &s->weights[s->n_weights];
    struct err err = { 0 };
    int half = 0;

    while (n_cols >> 2 * half)
        half++;
    for (uint32_t i = 0; i < n_cols; i++)
        numbers[i] = ldexpf(bench_normal(), -half);
    s->data[s->n_weights++] = numbers;
    struct weight_source source = { numbers, n_cols * sizeof *numbers, 1, n_cols, QUANT_F32, WEIGHT_ROWS,
                                    "norm" };
    assert_ok(weight_create(s->device, &source, w, &err), &err);
    return w;
}

static inline void record_route(struct side *s, const struct op_shape *c)
{
    const struct experts_shape *e = &experts_shape;
    struct route r = { .in = side_tensor(s, c->n_cols, ROWS_STEP),
                       .norm = side_router_norm(s, c->n_cols),
                       .router = side_weight(s, c->format, e->n_experts, c->n_cols),
                       .bias = c->bias ? side_vector(s, e->n_experts) : NULL,
                       .select_bias = e->select_bias ? side_vector(s, e->n_experts) : NULL,
                       .shared_gate = e->shared_gate ? side_vector(s, c->n_cols) : NULL,
                       .expert_scale = e->expert_scale ? side_vector(s, e->n_experts) : NULL,
                       .rule = e->rule,
                       .eps = 1e-5f,
                       .gain = e->gain };
    r.normed = side_tensor(s, c->n_cols, ROWS_STEP);
    r.ids = side_tensor(s, e->n_slots, ROWS_STEP);
    r.weights = side_tensor(s, e->n_slots + 1, ROWS_STEP);
    op_route(s->tape, r);
}

// Each row's ids are distinct.
static struct tensor side_ids(struct side *s)
{
    const struct experts_shape *e = &experts_shape;
    struct tensor ids = side_tensor(s, e->n_slots, ROWS_STEP);
    uint32_t n = tape_limits(s->tape)->max_rows * e->n_slots;
    float *numbers = mem_alloc_array(n, sizeof *numbers);
    struct err err = { 0 };

    for (uint32_t i = 0, first = 0; i < n; i++) {
        uint32_t slot = i % e->n_slots;
        first = slot > 0 ? first : e->one_for_all ? 1 : bench_random() % e->n_experts;
        numbers[i] = (float)((first + slot) % e->n_experts);
    }
    assert_ok(buffer_write(&s->buffers[s->n_buffers - 1], 0, numbers, (uint64_t)n * sizeof *numbers, &err),
              &err);
    mem_free(numbers);
    return ids;
}

static inline void record_experts_up(struct side *s, const struct op_shape *c)
{
    const struct experts_shape *e = &experts_shape;
    uint32_t n = e->n_experts * c->n_out;
    struct experts_up x = { .in = side_tensor(s, c->n_cols, ROWS_STEP),
                            .ids = side_ids(s),
                            .gate = side_weight(s, c->format, n, c->n_cols),
                            .up = side_weight(s, c->other ? c->other : c->format, n, c->n_cols),
                            .gate_bias = c->bias ? side_vector(s, n) : NULL,
                            .up_bias = c->bias ? side_vector(s, n) : NULL,
                            .n_experts = e->n_experts,
                            .activation = e->activation,
                            .limit = e->limit };
    x.shared_gate = e->n_shared ? side_weight(s, e->shared, e->n_shared, c->n_cols) : NULL;
    x.shared_up = e->n_shared ? side_weight(s, e->shared, e->n_shared, c->n_cols) : NULL;
    x.out = side_tensor(s, experts_hidden_cols(e->n_slots, c->n_out, e->n_shared), ROWS_STEP);
    op_experts_up(s->tape, x);
}

static inline void record_experts_down(struct side *s, const struct op_shape *c)
{
    const struct experts_shape *e = &experts_shape;
    uint32_t n = e->n_experts * c->n_out;
    struct experts_down x = { .in = side_tensor(s, experts_hidden_cols(e->n_slots, c->n_cols, e->n_shared),
                                                ROWS_STEP),
                              .ids = side_ids(s),
                              .weights = side_tensor(s, e->n_slots + 1, ROWS_STEP),
                              .down = side_weight(s, c->format, n, c->n_cols),
                              .bias = c->bias ? side_vector(s, n) : NULL,
                              .shared = e->n_shared ? side_weight(s, e->shared, c->n_out, e->n_shared) : NULL,
                              .n_experts = e->n_experts };
    if (!e->alone)
        x.add = side_tensor(s, c->n_out, ROWS_STEP);
    x.out = side_tensor(s, c->n_out, ROWS_STEP);
    op_experts_down(s->tape, x);
}

// The whole block. Its input is small beside what the experts add, else their errors would not show in the
// result; eps is smaller still. c->other: the format of down. A norm of the experts' own is 1, as trained
// ones are: gates are then about 0.5, and int8 rows cost 1e-4 and int8 hidden numbers 7e-5 of the result.
static inline void record_moe(struct side *s, const struct op_shape *c)
{
    const struct experts_shape *e = &experts_shape;
    uint32_t n = e->n_experts * c->n_out, n_hidden = experts_hidden_cols(e->n_slots, c->n_out, e->n_shared);
    enum quant of_down = c->other ? c->other : c->format;
    struct tensor in = side_tensor(s, c->n_cols, ROWS_STEP);
    struct moe m = { 0 };

    m.route = (struct route){ .in = in,
                              .normed = tape_tensor(s->tape, c->n_cols, ROWS_STEP),
                              .ids = tape_tensor(s->tape, e->n_slots, ROWS_STEP),
                              .weights = tape_tensor(s->tape, e->n_slots + 1, ROWS_STEP),
                              .norm = side_router_norm(s, c->n_cols),
                              .router = side_weight(s, QUANT_F32, e->n_experts, c->n_cols),
                              .bias = c->bias ? side_vector(s, e->n_experts) : NULL,
                              .select_bias = e->select_bias ? side_vector(s, e->n_experts) : NULL,
                              .shared_gate = e->shared_gate ? side_vector(s, c->n_cols) : NULL,
                              .expert_scale = e->expert_scale ? side_vector(s, e->n_experts) : NULL,
                              .rule = e->rule,
                              .eps = 1e-20f,
                              .gain = e->gain };
    m.expert_norm = e->own_norm ? side_vector(s, c->n_cols) : NULL;
    m.up =
        (struct experts_up){ .out = tape_tensor(s->tape, n_hidden, ROWS_STEP),
                             .in = e->own_norm ? tape_tensor(s->tape, c->n_cols, ROWS_STEP) : m.route.normed,
                             .ids = m.route.ids,
                             .gate = side_weight(s, c->format, n, c->n_cols),
                             .up = side_weight(s, c->format, n, c->n_cols),
                             .gate_bias = e->biases ? side_vector(s, n) : NULL,
                             .up_bias = e->biases ? side_vector(s, n) : NULL,
                             .n_experts = e->n_experts,
                             .activation = e->activation,
                             .limit = e->limit };
    m.down = (struct experts_down){ .in = m.up.out,
                                    .ids = m.route.ids,
                                    .weights = m.route.weights,
                                    .down = side_weight(s, of_down, e->n_experts * c->n_cols, c->n_out),
                                    .bias = e->biases ? side_vector(s, e->n_experts * c->n_cols) : NULL,
                                    .add = e->alone ? (struct tensor){ 0 } : in,
                                    .n_experts = e->n_experts };
    if (e->n_shared) {
        m.up.shared_gate = side_weight(s, e->shared, e->n_shared, c->n_cols);
        m.up.shared_up = side_weight(s, e->shared, e->n_shared, c->n_cols);
        m.down.shared = side_weight(s, e->shared == c->format ? of_down : e->shared, c->n_cols, e->n_shared);
    }
    m.down.out = side_tensor(s, c->n_cols, ROWS_STEP);
    assert_true(op_moe(s->tape, &m));
}

static inline void side_scale_input(struct side *s, float factor)
{
    struct buffer *in = &s->buffers[0];
    uint64_t n = in->bytes / sizeof(float);
    float *numbers = mem_alloc_array(n, sizeof *numbers);
    struct err err = { 0 };

    assert_ok(buffer_read(in, 0, numbers, in->bytes, &err), &err);
    for (uint64_t i = 0; i < n; i++)
        numbers[i] *= factor;
    assert_ok(buffer_write(in, 0, numbers, in->bytes, &err), &err);
    mem_free(numbers);
}
