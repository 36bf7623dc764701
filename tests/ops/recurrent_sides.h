// recurrent_sides.h - the operations that carry a state on two devices, for a device's tests: see
// device_sides.h. A case's window is the operation's flags.
#pragma once
#include "ops/delta_step/delta_step.h"
#include "ops/device_sides.h"

// Sequences go on from the first half of the rows and leave their states in the second.
static struct state_rows side_states(struct side *s, const struct op_shape *c, uint32_t n_words)
{
    return (struct state_rows){ side_buffer(s, 2ull * c->rows * n_words * 4), n_words };
}

// n_cols channels, of a kernel of n_out.
static inline void record_conv_step(struct side *s, const struct op_shape *c)
{
    uint32_t n = c->n_cols;
    struct conv_step conv = { .in = side_tensor(s, 3 * n + 5, ROWS_STEP),
                              .w = side_vector(s, n * c->n_out),
                              .bias = c->bias ? side_vector(s, n) : NULL,
                              .states = side_states(s, c, 3 + conv_step_words(n, c->n_out)),
                              .state_at = 3,
                              .at = n + 5,
                              .gate_at = 2 * n + 5,
                              .flags = c->window };
    conv.out = side_tensor(s, n, ROWS_STEP);
    op_conv_step(s->tape, conv);
}

// n_heads over n_kv_heads, of head_dim and n_out numbers.
static inline void record_scan(struct side *s, const struct op_shape *c)
{
    uint32_t n_k = c->n_kv_heads * c->head_dim, n_v = c->n_heads * c->n_out;
    bool delta = c->window & SCAN_DELTA;
    struct scan scan = { .in = side_tensor(s, 2 * n_k + n_v, ROWS_STEP),
                         .dt = side_tensor(s, c->n_heads + 2, ROWS_STEP),
                         .beta = side_tensor(s, c->n_heads + 1, ROWS_STEP),
                         .a = side_vector(s, c->n_heads),
                         .dt_bias = side_vector(s, c->n_heads),
                         .d = delta ? NULL : side_vector(s, c->n_heads),
                         .states = side_states(s, c, 4 + c->n_heads * c->head_dim * c->n_out),
                         .state_at = 4,
                         .n_heads = c->n_heads,
                         .n_k_heads = c->n_kv_heads,
                         .d_k = c->head_dim,
                         .d_v = c->n_out,
                         .k_at = n_k,
                         .v_at = 2 * n_k,
                         .dt_at = 2,
                         .beta_at = 1,
                         .flags = c->window | SCAN_LOG_A, // whose decay is below 1 for any number
                         .t_min = 0.2f,
                         .t_max = 0.8f };
    scan.out = side_tensor(s, n_v, ROWS_STEP);
    op_scan(s->tape, scan);
}

// n_heads groups of head_dim.
static inline void record_gated_norm(struct side *s, const struct op_shape *c)
{
    uint32_t n = c->n_heads * c->head_dim;
    struct gated_norm g = { .in = side_tensor(s, n, ROWS_STEP),
                            .z = side_tensor(s, n + 3, ROWS_STEP),
                            .scale = c->head_norm ? side_vector(s, c->bias ? n : c->head_dim) : NULL,
                            .n_groups = c->n_heads,
                            .z_at = 3,
                            .flags = c->window,
                            .eps = 1e-5f };
    g.out = side_tensor(s, n, ROWS_STEP);
    op_gated_norm(s->tape, g);
}

// n_heads over n_kv_heads, of head_dim and n_out numbers; a kernel of 4, or with bias of 3.
static inline struct tensor delta_step_of(struct side *s, const struct op_shape *c)
{
    uint32_t n_k = c->n_kv_heads * c->head_dim, n_v = c->n_heads * c->n_out, n = 2 * n_k + n_v,
             kernel = c->bias ? 3 : 4, words = conv_step_words(n, kernel);
    struct delta_step d = {
        .conv = { .in = side_tensor(s, n + 6, ROWS_STEP),
                  .w = side_vector(s, n * kernel),
                  .at = 5,
                  .state_at = 3,
                  .flags = CONV_SILU },
        .scan = { .dt = side_tensor(s, c->n_heads + 2, ROWS_STEP),
                  .beta = side_tensor(s, c->n_heads + 1, ROWS_STEP),
                  .a = side_vector(s, c->n_heads),
                  .dt_bias = side_vector(s, c->n_heads),
                  .state_at = 3 + words,
                  .n_heads = c->n_heads,
                  .n_k_heads = c->n_kv_heads,
                  .d_k = c->head_dim,
                  .d_v = c->n_out,
                  .q_at = n_v,
                  .k_at = n_v + n_k,
                  .dt_at = 2,
                  .beta_at = 1,
                  .flags = c->window | SCAN_LOG_A },
        .norm = { .z = side_tensor(s, n_v + 3, ROWS_STEP),
                  .z_at = 3,
                  .scale = side_vector(s, c->head_norm ? n_v : c->n_out),
                  .n_groups = c->n_heads,
                  .eps = 1e-5f },
    };
    d.conv.states = d.scan.states = side_states(s, c, 3 + words + c->n_heads * c->head_dim * c->n_out);
    d.conv.out = d.scan.in = tape_tensor(s->tape, n, ROWS_STEP);
    d.scan.out = d.norm.in = d.norm.out = side_tensor(s, n_v, ROWS_STEP);
    op_delta_step(s->tape, &d);
    return d.norm.out;
}

static inline void record_delta_step(struct side *s, const struct op_shape *c)
{
    delta_step_of(s, c);
}

// And the product behind it, to n_cols columns.
static inline void record_delta_step_then_matmul(struct side *s, const struct op_shape *c)
{
    struct tensor in = delta_step_of(s, c);
    const struct weight *w = side_weight(s, c->format, c->n_cols, in.n_cols);

    op_matmul(s->tape, (struct matmul){ .out = side_tensor(s, c->n_cols, ROWS_STEP), .in = in, .w = w });
}

static const struct op_shape recurrent_convs[] = {
    { .n_cols = 36, .n_out = 3, .window = CONV_FACTOR | CONV_GATE },
    { .n_cols = 300, .n_out = 4, .window = CONV_SILU },
    { .n_cols = 129, .n_out = 2, .window = CONV_SILU | CONV_GATE, .bias = true },
    { .n_cols = 5, .n_out = 8, .window = CONV_FACTOR, .bias = true },
};
static const struct op_shape recurrent_scans[] = {
    { .n_heads = 6, .n_kv_heads = 3, .head_dim = 16, .n_out = 32, .window = SCAN_DELTA },
    { .n_heads = 4, .n_kv_heads = 2, .head_dim = 128, .n_out = 128, .window = SCAN_DELTA | SCAN_TILED },
    { .n_heads = 3, .n_kv_heads = 1, .head_dim = 13, .n_out = 39, .window = SCAN_DELTA },
    { .n_heads = 2, .n_kv_heads = 1, .head_dim = 200, .n_out = 5, .window = SCAN_DELTA },
    { .n_heads = 6, .n_kv_heads = 2, .head_dim = 64, .n_out = 20, .window = 0 },
    { .n_heads = 4, .n_kv_heads = 1, .head_dim = 128, .n_out = 64, .window = 0 },
};
enum { N_RECURRENT_SCANS = sizeof recurrent_scans / sizeof *recurrent_scans };
static const struct op_shape recurrent_norms[] = {
    { .n_heads = 3, .head_dim = 16, .head_norm = true },
    { .n_heads = 32, .head_dim = 128, .head_norm = true },
    { .n_heads = 5, .head_dim = 70, .head_norm = true, .bias = true, .window = GATED_FIRST },
    { .n_heads = 1, .head_dim = 300, .window = GATED_SIGMOID },
    { .n_heads = 1, .head_dim = 1024, .window = GATED_SIGMOID },
    { .n_heads = 2, .head_dim = 700, .head_norm = true, .bias = true, .window = GATED_FIRST },
};
static const struct op_shape recurrent_steps[] = {
    { .n_heads = 4, .n_kv_heads = 2, .head_dim = 128, .n_out = 128, .window = SCAN_DELTA | SCAN_TILED },
    { .n_heads = 6, .n_kv_heads = 2, .head_dim = 128, .n_out = 128, .window = SCAN_DELTA, .head_norm = true },
    { .n_heads = 3, .n_kv_heads = 3, .head_dim = 128, .n_out = 128, .window = SCAN_DELTA },
    { .n_heads = 2, .n_kv_heads = 1, .head_dim = 128, .n_out = 128, .window = SCAN_DELTA, .bias = true },
    { .n_heads = 6, .n_kv_heads = 3, .head_dim = 16, .n_out = 32, .window = SCAN_DELTA },
};

static const struct {
    const char *name;
    record *record;
    const struct op_shape *shapes;
    uint32_t n;
    double limit;
} recurrent_ops[] = {
    { "conv_step", record_conv_step, recurrent_convs, sizeof recurrent_convs / sizeof *recurrent_convs,
      1e-11 },
    { "scan", record_scan, recurrent_scans, N_RECURRENT_SCANS, 1e-10 },
    { "gated_norm", record_gated_norm, recurrent_norms, sizeof recurrent_norms / sizeof *recurrent_norms,
      1e-11 },
    { "delta_step", record_delta_step, recurrent_steps, sizeof recurrent_steps / sizeof *recurrent_steps,
      1e-10 },
};
enum { N_RECURRENT_OPS = sizeof recurrent_ops / sizeof *recurrent_ops };
