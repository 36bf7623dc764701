// test_experts.c - the router's rules against figures made by hand; a block of experts against sums in
// double, its vector kernels against the plain loops, and a row's bits against the company it is in.
#include "ops/matmul/matmul.h"
#include "ops/moe/moe.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/ops.h"
#include "op_harness.h"

enum { MOST_ROWS = 64 };

// --- the rules ---

struct expert_choice {
    struct route_rule rule;
    uint32_t n, k;
    float logits[8], select_bias[8];
    bool biased;
    float ids[4], weights[4];
};

#define PLAIN_GROUPS 1, 1, ROUTE_BEST
static const struct expert_choice choices[] = {
    // softmax of 0, ln 2, ln 4, ln 8 is 1/15, 2/15, 4/15, 8/15
    { { ROUTE_SOFTMAX, PLAIN_GROUPS, 0, 0, 1 },
      4,
      2,
      { 0, 0.693147181f, 1.386294361f, 2.079441542f },
      { 0 },
      false,
      { 3, 2 },
      { 8 / 15.f, 4 / 15.f } },
    { { ROUTE_SOFTMAX, PLAIN_GROUPS, 1, 0, 1 },
      4,
      2,
      { 0, 0.693147181f, 1.386294361f, 2.079441542f },
      { 0 },
      false,
      { 3, 2 },
      { 2 / 3.f, 1 / 3.f } },
    { { ROUTE_SOFTMAX, PLAIN_GROUPS, 0, 0, 16 },
      4,
      1,
      { 0, 0.693147181f, 1.386294361f, 2.079441542f },
      { 0 },
      false,
      { 3 },
      { 128 / 15.f } },
    { { ROUTE_CHOSEN, PLAIN_GROUPS, 0, 0, 1 },
      4,
      2,
      { 5, 0.693147181f, -3, 5.693147181f },
      { 0 },
      false,
      { 3, 0 },
      { 2 / 3.f, 1 / 3.f } },
    // ties to the lowest; all are chosen
    { { ROUTE_SOFTMAX, PLAIN_GROUPS, 1, 0, 1 },
      4,
      4,
      { 1, 2, 2, 1 },
      { 0 },
      false,
      { 1, 2, 0, 3 },
      { .36552929f, .36552929f, .13447071f, .13447071f } },
    // the bias chooses and is in no weight; sigmoid(0) = 1/2, sigmoid(ln 3) = 3/4
    { { ROUTE_SIGMOID, PLAIN_GROUPS, 1, 1e-20f, 2.5f },
      3,
      2,
      { 0, 1.098612289f, 20 },
      { 9, 8, -9 },
      true,
      { 0, 1 },
      { 1, 1.5f } },
    { { ROUTE_SIGMOID, PLAIN_GROUPS, 0, 0, 1 },
      3,
      2,
      { 0, 1.098612289f, -20 },
      { 0 },
      false,
      { 1, 0 },
      { .75f, .5f } },
    { { ROUTE_SOFTMAX, PLAIN_GROUPS, 1, 1e-12f, 1 },
      3,
      2,
      { 0, 0.693147181f, 0 },
      { .5f, 0, .5f },
      true,
      { 0, 2 },
      { .5f, .5f } },
    // groups by their best: the second of the best group goes before the best of the worst
    { { ROUTE_SOFTMAX, 4, 2, ROUTE_BEST, 1, 0, 1 },
      8,
      3,
      { 3, 0, 2, 1, 1, 1, 2, 2 },
      { 0 },
      false,
      { 0, 2, 3 },
      { .66524096f, .24472847f, .09003057f } },
    // groups by two: 4 alone loses to 3 + 2; ties to the lowest group. What is left out may not win at 0
    // against negative keys
    { { ROUTE_SIGMOID, 2, 1, ROUTE_TWO_BEST, 0, 0, 1 },
      4,
      2,
      { 0, 0, 0, 0 },
      { 4, -3, 3, 2 },
      true,
      { 2, 3 },
      { .5f, .5f } },
    { { ROUTE_SIGMOID, 2, 1, ROUTE_TWO_BEST, 0, 0, 1 },
      4,
      2,
      { 0, 0, 0, 0 },
      { -2, -3, -3, -2 },
      true,
      { 0, 1 },
      { .5f, .5f } },
};

static void rules_choose_as_written(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        const struct expert_choice *c = &choices[i];
        struct route_args args = { .n_cols = 1, .n_experts = c->n, .n_slots = c->k, .rule = c->rule };
        float logits[8], ids[4], weights[5];
        memcpy(logits, c->logits, sizeof logits);
        route_choose(&args, logits, c->biased ? c->select_bias : NULL, ids, weights);
        for (uint32_t j = 0; j < c->k; j++)
            if (ids[j] != c->ids[j] || fabsf(weights[j] - c->weights[j]) > 1e-6f * fabsf(c->weights[j]))
                fail_msg("choice %zu, slot %u: expert %g with %.8g, not %g with %.8g", i, j, (double)ids[j],
                         (double)weights[j], (double)c->ids[j], (double)c->weights[j]);
    }
}

static void a_logit_that_is_no_number_ends_the_row(void **state)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct route_args args = { .n_cols = 1, .n_experts = 3, .n_slots = 2, .rule = choices[0].rule };
        float logits[3] = { 1, 2, bad[i] }, ids[2], weights[3] = { 0 };
        route_choose(&args, logits, NULL, ids, weights);
        assert_true(isnan(weights[0]) && isnan(weights[1]) && isnan(weights[2]));
        assert_true(ids[0] == 0 && ids[1] == 1);
    }
}

// --- a block: route, experts_up, experts_down ---

struct expert_setting {
    uint32_t n_cols, n_ffn, n_shared, n_experts, n_slots;
    enum quant router, up, down;
    struct route_rule rule;
    float limit;
    bool biases, select_bias, shared_gate, exact;
    bool expert_scale, alone; // alone: nothing is added to the sum
    float gain;
    enum activation activation;
};
static bool as_one_operation; // how block_open records
static bool own_norm;         // the experts read rows of one

static const struct expert_setting settings[] = {
    { 64,
      32,
      0,
      8,
      2,
      QUANT_F32,
      QUANT_Q4_0,
      QUANT_Q8_0,
      { ROUTE_SOFTMAX, PLAIN_GROUPS, 1, 0, 1 },
      0,
      false,
      false,
      false,
      false,
      false,
      false,
      0,
      ACTIVATION_SILU },
    { 56,
      36,
      0,
      5,
      3,
      QUANT_F32,
      QUANT_F32,
      QUANT_F32,
      { ROUTE_CHOSEN, PLAIN_GROUPS, 0, 0, 1 },
      7,
      true,
      false,
      false,
      false,
      false,
      false,
      0,
      ACTIVATION_SILU },
    { 96,
      96,
      160,
      7,
      4,
      QUANT_BF16,
      QUANT_BF16,
      QUANT_BF16,
      { ROUTE_SOFTMAX, PLAIN_GROUPS, 0, 0, 1 },
      0,
      false,
      false,
      true,
      false,
      false,
      false,
      0,
      ACTIVATION_SILU },
    { 256,
      256,
      0,
      16,
      4,
      QUANT_F32,
      QUANT_Q4_K,
      QUANT_Q6_K,
      { ROUTE_SIGMOID, 4, 2, ROUTE_TWO_BEST, 1, 1e-20f, 1.8f },
      0,
      false,
      true,
      false,
      false,
      false,
      false,
      0,
      ACTIVATION_SILU },
    { 64,
      96,
      32,
      40,
      8,
      QUANT_F16,
      QUANT_MXFP4,
      QUANT_MXFP4,
      { ROUTE_CHOSEN, PLAIN_GROUPS, 0, 0, 1 },
      1.5f,
      true,
      false,
      false,
      false,
      false,
      false,
      0,
      ACTIVATION_SILU },
    { 72,
      40,
      44,
      3,
      3,
      QUANT_F32,
      QUANT_F16,
      QUANT_F16,
      { ROUTE_SIGMOID, PLAIN_GROUPS, 1, 0, 1 },
      0,
      true,
      true,
      true,
      false,
      false,
      false,
      0,
      ACTIVATION_SILU },
    { 96,
      32,
      64,
      9,
      3,
      QUANT_F32,
      QUANT_Q8_0,
      QUANT_Q8_0,
      { ROUTE_SOFTMAX, PLAIN_GROUPS, 1, 0, 1 },
      0,
      false,
      false,
      false,
      false,
      true,
      true,
      0.3f,
      ACTIVATION_GELU_TANH },
    { 64,
      40,
      0,
      4,
      2,
      QUANT_F32,
      QUANT_F16,
      QUANT_F32,
      { ROUTE_SIGMOID, PLAIN_GROUPS, 1, 1e-20f, 2.5f },
      0,
      false,
      true,
      false,
      false,
      false,
      true,
      0,
      ACTIVATION_RELU },
};
enum { N_SETTINGS = sizeof settings / sizeof *settings };

struct expert_outcome {
    float *ids, *weights, *hidden, *out;
    size_t n_hidden, n_out;
};

static void outcome_free(struct expert_outcome *o)
{
    mem_free(o->ids);
    mem_free(o->weights);
    mem_free(o->hidden);
    mem_free(o->out);
}

struct expert_block {
    struct bench b;
    struct route route;
    struct experts_up up;
    struct experts_down down;
    const struct weight *expert_norm; // with own_norm
    float *in, *ids, *weights, *hidden, *out;
};

static const struct weight *vector_if(struct bench *b, bool wanted, uint32_t n)
{
    return wanted ? bench_weight(b, QUANT_F32, 1, n) : NULL;
}

static void block_weights(struct expert_block *k, const struct expert_setting *s)
{
    uint32_t n_experts = s->n_experts;

    bench_seed(11);
    k->route = (struct route){ .norm = bench_weight(&k->b, QUANT_F32, 1, s->n_cols),
                               .router = bench_weight(&k->b, s->router, n_experts, s->n_cols),
                               .bias = vector_if(&k->b, s->biases, n_experts),
                               .select_bias = vector_if(&k->b, s->select_bias, n_experts),
                               .shared_gate = vector_if(&k->b, s->shared_gate, s->n_cols),
                               .expert_scale = vector_if(&k->b, s->expert_scale, n_experts),
                               .rule = s->rule,
                               .eps = 1e-5f,
                               .gain = s->gain };
    k->up = (struct experts_up){ .gate = bench_weight(&k->b, s->up, n_experts * s->n_ffn, s->n_cols),
                                 .up = bench_weight(&k->b, s->up, n_experts * s->n_ffn, s->n_cols),
                                 .gate_bias = vector_if(&k->b, s->biases, n_experts * s->n_ffn),
                                 .up_bias = vector_if(&k->b, s->biases, n_experts * s->n_ffn),
                                 .n_experts = n_experts,
                                 .activation = s->activation,
                                 .limit = s->limit };
    k->down = (struct experts_down){ .down = bench_weight(&k->b, s->down, n_experts * s->n_cols, s->n_ffn),
                                     .bias = vector_if(&k->b, s->biases, n_experts * s->n_cols),
                                     .n_experts = n_experts };
    if (s->n_shared == 0)
        return;
    k->up.shared_gate = bench_weight(&k->b, s->up, s->n_shared, s->n_cols);
    k->up.shared_up = bench_weight(&k->b, s->up, s->n_shared, s->n_cols);
    k->down.shared = bench_weight(&k->b, s->down, s->n_cols, s->n_shared);
}

// Rows [first, first + n) of a step that would have more.
static void block_open(struct expert_block *k, const struct cpu_options *options,
                       const struct expert_setting *s, uint32_t first, uint32_t n)
{
    *k = (struct expert_block){ 0 };
    bench_open(&k->b, options, (struct tape_limits){ .max_rows = n, .max_outputs = 1, .exact = s->exact });
    block_weights(k, s);
    k->route.in = bench_tensor(&k->b, s->n_cols, ROWS_STEP, &k->in);
    k->down.add = s->alone ? (struct tensor){ 0 } : k->route.in;
    k->route.normed = k->up.in = bench_tensor(&k->b, s->n_cols, ROWS_STEP, NULL);
    if (own_norm) {
        k->expert_norm = bench_weight(&k->b, QUANT_F32, 1, s->n_cols);
        k->up.in = bench_tensor(&k->b, s->n_cols, ROWS_STEP, NULL);
    }
    k->route.ids = k->up.ids = k->down.ids = bench_tensor(&k->b, s->n_slots, ROWS_STEP, &k->ids);
    k->route.weights = k->down.weights = bench_tensor(&k->b, s->n_slots + 1, ROWS_STEP, &k->weights);
    k->up.out = k->down.in =
        bench_tensor(&k->b, experts_hidden_cols(s->n_slots, s->n_ffn, s->n_shared), ROWS_STEP, &k->hidden);
    k->down.out = bench_tensor(&k->b, s->n_cols, ROWS_STEP, &k->out);
    for (uint32_t r = 0; r < n; r++) {
        bench_seed(100 + first + r);
        for (uint32_t c = 0; c < s->n_cols; c++)
            k->in[(size_t)r * s->n_cols + c] = bench_normal();
    }
    if (as_one_operation) {
        struct moe m = { .route = k->route, .expert_norm = k->expert_norm, .up = k->up, .down = k->down };
        assert_true(op_moe(k->b.tape, &m));
    } else {
        op_route(k->b.tape, k->route);
        if (own_norm)
            op_rmsnorm(k->b.tape, (struct rmsnorm){ .out = k->up.in,
                                                    .in = k->route.in,
                                                    .scale = k->expert_norm,
                                                    .eps = k->route.eps });
        op_experts_up(k->b.tape, k->up);
        op_experts_down(k->b.tape, k->down);
    }
    bench_seal(&k->b);
    bench_step(&k->b)->n_rows = n;
}

static float *copied(const float *x, size_t n)
{
    float *copy = mem_alloc_array(n, sizeof *copy);
    memcpy(copy, x, n * sizeof *copy);
    return copy;
}

static struct expert_outcome play(const struct cpu_options *options, const struct expert_setting *s,
                                  uint32_t first, uint32_t n)
{
    struct expert_block k;

    block_open(&k, options, s, first, n);
    bench_play(&k.b);
    struct expert_outcome o = { .n_hidden =
                                    (size_t)n * experts_hidden_cols(s->n_slots, s->n_ffn, s->n_shared),
                                .n_out = (size_t)n * s->n_cols };
    o.ids = copied(k.ids, (size_t)n * s->n_slots);
    o.weights = copied(k.weights, (size_t)n * (s->n_slots + 1));
    o.hidden = copied(k.hidden, o.n_hidden);
    o.out = copied(k.out, o.n_out);
    bench_close(&k.b);
    return o;
}

static double dot(const struct weight *w, uint32_t row, const double *x)
{
    float decoded[512];
    double sum = 0;

    matmul_decode_row(w, row, decoded);
    for (uint32_t c = 0; c < w->n_cols; c++)
        sum += (double)decoded[c] * x[c];
    return sum;
}

static double bias_of(const struct weight *bias, uint32_t at)
{
    return bias ? (double)((const float *)bias->buffer.host)[at] : 0;
}

static double gated(const struct expert_setting *s, double gate, double up)
{
    double limit = (double)s->limit;

    if (s->activation == ACTIVATION_RELU)
        return fmax(gate, 0) * up;
    if (s->activation == ACTIVATION_GELU_TANH)
        return gate / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (gate + 0.044715 * gate * gate * gate))) * up;
    if (limit == 0)
        return gate / (1 + exp(-gate)) * up;
    gate = fmin(gate, limit);
    return (fmax(fmin(up, limit), -limit) + 1) * gate / (1 + exp(-1.702 * gate));
}

// What one expert makes of the normed row n, in double: gate and up from row `first` of the matrices on,
// outputs from row `out`.
struct expert {
    const struct weight *gate, *up, *down, *gate_bias, *up_bias, *bias;
    uint32_t first, out, n_ffn;
};

static void add_expert(const struct expert_setting *s, const struct expert *e, const double *n, double weight,
                       double *sum)
{
    double hidden[512];

    for (uint32_t i = 0; i < e->n_ffn; i++)
        hidden[i] = gated(s, dot(e->gate, e->first + i, n) + bias_of(e->gate_bias, e->first + i),
                          dot(e->up, e->first + i, n) + bias_of(e->up_bias, e->first + i));
    for (uint32_t c = 0; c < s->n_cols; c++)
        sum[c] += weight * (dot(e->down, e->out + c, hidden) + bias_of(e->bias, e->out + c));
}

static void reference_row(const struct expert_block *k, const struct expert_setting *s, uint32_t r,
                          double *out)
{
    double n[512], squares = 0;
    const float *in = k->in + (size_t)r * s->n_cols, *weights = k->weights + (size_t)r * (s->n_slots + 1);

    for (uint32_t c = 0; c < s->n_cols; c++)
        squares += (double)in[c] * (double)in[c];
    for (uint32_t c = 0; c < s->n_cols; c++) {
        n[c] = (double)in[c] * bias_of(k->route.norm, c) / sqrt(squares / s->n_cols + 1e-5);
        n[c] *= s->gain > 0 ? (double)s->gain : 1;
        out[c] = s->alone ? 0 : (double)in[c];
    }
    for (uint32_t j = 0; j < s->n_slots; j++) {
        uint32_t id = (uint32_t)k->ids[(size_t)r * s->n_slots + j];
        struct expert e = { k->up.gate,   k->up.up,      k->down.down,   k->up.gate_bias, k->up.up_bias,
                            k->down.bias, id * s->n_ffn, id * s->n_cols, s->n_ffn };
        add_expert(s, &e, n, (double)weights[j], out);
    }
    struct expert shared = { k->up.shared_gate, k->up.shared_up, k->down.shared, NULL, NULL, NULL, 0, 0,
                             s->n_shared };
    double gate = k->route.shared_gate ? 1 / (1 + exp(-dot(k->route.shared_gate, 0, n))) : 1;
    assert_true(fabs((double)weights[s->n_slots] - gate) <= 1e-5);
    if (s->n_shared)
        add_expert(s, &shared, n, gate, out);
}

static void the_plain_loops_are_the_sums_in_double(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_SETTINGS; i++) {
        struct expert_block k;
        double error = 0, norm = 0, want[512];
        block_open(&k, &(struct cpu_options){ .plain = true }, &settings[i], 0, 5);
        bench_play(&k.b);
        for (uint32_t r = 0; r < 5; r++) {
            reference_row(&k, &settings[i], r, want);
            for (uint32_t c = 0; c < settings[i].n_cols; c++) {
                double d = want[c] - (double)k.out[(size_t)r * settings[i].n_cols + c];
                error += d * d;
                norm += want[c] * want[c];
            }
        }
        bench_close(&k.b);
        if (!(error <= 1e-11 * norm))
            fail_msg("setting %u: error %.2g", i, error / norm);
    }
}

static void a_block_in_one_operation_has_the_bits_of_its_parts(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_SETTINGS; i++) {
        struct cpu_options plain = { .plain = true };
        own_norm = i % 2;
        struct expert_outcome parts = play(&plain, &settings[i], 3, 1 + i);
        as_one_operation = true;
        struct expert_outcome whole = play(&plain, &settings[i], 3, 1 + i);
        as_one_operation = own_norm = false;
        assert_memory_equal(parts.out, whole.out, parts.n_out * sizeof(float));
        outcome_free(&parts);
        outcome_free(&whole);
    }
}

static void an_experts_factor_multiplies_its_weight(void **state)
{
    struct expert_setting s = settings[0], scaled = s;
    struct cpu_options plain = { .plain = true };
    struct expert_block k;

    (void)state;
    scaled.expert_scale = true;
    struct expert_outcome without = play(&plain, &s, 0, 7);
    block_open(&k, &plain, &scaled, 0, 7);
    bench_play(&k.b);
    for (uint32_t i = 0; i < 7 * s.n_slots; i++) {
        uint32_t row = i / s.n_slots, at = row * (s.n_slots + 1) + i % s.n_slots;
        float factor = ((const float *)k.route.expert_scale->buffer.host)[(uint32_t)without.ids[i]];
        assert_true(k.ids[i] == without.ids[i] && k.weights[at] == without.weights[at] * factor);
    }
    bench_close(&k.b);
    outcome_free(&without);
}

static void tapes_that_want_parts_record_them(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        struct expert_block k = { 0 };
        struct tape_limits limits = { .max_rows = 1, .max_outputs = 1, .invariant = i == 0 };
        struct cpu_options options = { .plain = i < 2, .parts = i == 1 };
        bench_open(&k.b, &options, limits);
        block_weights(&k, &settings[0]);
        k.down.add = (struct tensor){ .id = 1 };
        assert_false(op_moe(k.b.tape, &(struct moe){ .route = k.route, .up = k.up, .down = k.down }));
        bench_close(&k.b);
    }
}

struct judged {
    const struct expert_setting *s;
    uint32_t n, features;
};

// Each command alone, from the same inputs.
static bool judge(void *arg, const struct tape_difference *d)
{
    const struct judged *j = arg;
    const struct expert_setting *s = j->s;
    double limit = strcmp(d->name, "route") == 0                          ? 1e-10
                   : s->exact || s->up == QUANT_F32 || s->up == QUANT_F16 ? 1e-9
                                                                          : 5e-4;
    if (!(d->error <= limit))
        fail_msg("%s of %u experts, %s%s, %u rows, features %x: error %.2g in operand %u", d->name,
                 s->n_experts, quant_info(s->up)->name, s->exact ? " exact" : "", j->n, j->features, d->error,
                 d->operand);
    return true;
}

static void blocks_are_close_to_the_plain_loops(void **state)
{
    static const uint32_t rows[] = { 1, 3, 20, MOST_ROWS };
    uint32_t sets[8], n_sets = bench_features(sets);

    (void)state;
    for (uint32_t i = 0; i < N_SETTINGS * n_sets * 8; i++) {
        struct expert_setting s = settings[i % N_SETTINGS];
        struct judged j = { &s, rows[i / N_SETTINGS % 4], sets[i / N_SETTINGS / 8] };
        struct expert_block plain, fast;
        struct err err = { 0 };
        s.exact = i / N_SETTINGS / 4 % 2;
        block_open(&plain, &(struct cpu_options){ .plain = true }, &s, 0, j.n);
        block_open(&fast,
                   &(struct cpu_options){ .features = j.features, .n_threads = 2, .no_repack = i % 5 == 0 },
                   &s, 0, j.n);
        const struct buffer *steps[2] = { &plain.b.step, &fast.b.step };
        assert_ok(tape_diff(plain.b.tape, fast.b.tape, steps, judge, &j, &err), &err);
        bench_close(&plain.b);
        bench_close(&fast.b);
    }
}

static void a_row_has_the_same_bits_in_any_batch(void **state)
{
    uint32_t sets[8], n_sets = bench_features(sets);

    (void)state;
    for (uint32_t i = 0; i < N_SETTINGS * n_sets; i++) {
        const struct expert_setting *s = &settings[i % N_SETTINGS];
        struct cpu_options o = { .features = sets[i / N_SETTINGS] };
        struct expert_outcome whole = play(&o, s, 0, MOST_ROWS);
        for (uint32_t first = 0, n; first < MOST_ROWS; first += n) {
            n = 1 + first % 7;
            n = n < MOST_ROWS - first ? n : MOST_ROWS - first;
            o.n_threads = 1 + first % 3;
            o.no_repack = first % 2;
            struct expert_outcome some = play(&o, s, first, n);
            assert_memory_equal(some.ids, whole.ids + (size_t)first * s->n_slots, (size_t)n * s->n_slots * 4);
            assert_memory_equal(some.hidden, whole.hidden + first * (whole.n_hidden / MOST_ROWS),
                                some.n_hidden * 4);
            assert_memory_equal(some.out, whole.out + (size_t)first * s->n_cols, some.n_out * 4);
            outcome_free(&some);
        }
        outcome_free(&whole);
    }
}

// More rows of an expert than it takes at once.
static void many_rows_have_the_same_bits(void **state)
{
    uint32_t sets[8], n_sets = bench_features(sets);

    (void)state;
    for (uint32_t i = 0; i + 1 < n_sets; i++) { // without SIMD there are no blocks
        const struct expert_setting *s = &settings[5];
        struct cpu_options o = { .features = sets[i], .n_threads = 2 };
        struct expert_outcome whole = play(&o, s, 0, 600), some = play(&o, s, 500, 9);
        assert_memory_equal(some.hidden, whole.hidden + 500 * (whole.n_hidden / 600), some.n_hidden * 4);
        assert_memory_equal(some.out, whole.out + 500 * (size_t)s->n_cols, some.n_out * 4);
        outcome_free(&whole);
        outcome_free(&some);
    }
}

// NaN in one row of three: its result holds nothing else, and the others do not change.
static void a_bad_row_stays_alone(void **state)
{
    uint32_t sets[8], n_sets = bench_features(sets);

    (void)state;
    for (uint32_t i = 0; i < N_SETTINGS * n_sets; i++) {
        const struct expert_setting *s = &settings[i % N_SETTINGS];
        struct cpu_options o = { .features = sets[i / N_SETTINGS] };
        struct expert_outcome good = play(&o, s, 0, 3);
        struct expert_block k;
        block_open(&k, &o, s, 0, 3);
        k.in[s->n_cols + 3] = NAN;
        bench_play(&k.b);
        for (uint32_t c = 0; c < s->n_cols; c++)
            assert_true(isnan(k.out[s->n_cols + c]));
        assert_memory_equal(k.out, good.out, s->n_cols * 4);
        assert_memory_equal(k.out + 2 * s->n_cols, good.out + 2 * s->n_cols, s->n_cols * 4);
        bench_close(&k.b);
        outcome_free(&good);
    }
}

// --- what recording refuses ---

static void refused(struct expert_block *k, const char *message)
{
    struct err err = { 0 };

    assert_false(tape_seal(k->b.tape, &err));
    if (!strstr(err.message, message))
        fail_msg("\"%s\" does not hold \"%s\"", err.message, message);
    bench_close(&k->b);
}

static void block_begin(struct expert_block *k, const struct expert_setting *s)
{
    *k = (struct expert_block){ 0 };
    bench_open(&k->b, &(struct cpu_options){ .plain = true },
               (struct tape_limits){ .max_rows = 2, .max_outputs = 1 });
    block_weights(k, s);
    k->route.in = k->down.add = k->down.out = bench_tensor(&k->b, s->n_cols, ROWS_STEP, NULL);
    k->route.normed = k->up.in = bench_tensor(&k->b, s->n_cols, ROWS_STEP, NULL);
    if (own_norm) {
        k->expert_norm = bench_weight(&k->b, QUANT_F32, 1, s->n_cols);
        k->up.in = bench_tensor(&k->b, s->n_cols, ROWS_STEP, NULL);
    }
    k->route.ids = k->up.ids = k->down.ids = bench_tensor(&k->b, s->n_slots, ROWS_STEP, NULL);
    k->route.weights = k->down.weights = bench_tensor(&k->b, s->n_slots + 1, ROWS_STEP, NULL);
    k->up.out = k->down.in =
        bench_tensor(&k->b, experts_hidden_cols(s->n_slots, s->n_ffn, s->n_shared), ROWS_STEP, NULL);
}

static void misfits_are_refused(void **state)
{
    struct expert_block k;

    (void)state;
    block_begin(&k, &settings[0]);
    k.route.ids = k.route.weights = bench_tensor(&k.b, 9, ROWS_STEP, NULL);
    op_route(k.b.tape, k.route);
    refused(&k, "9 of 8 experts a row");
    block_begin(&k, &settings[0]);
    k.route.rule.n_groups = 3;
    op_route(k.b.tape, k.route);
    refused(&k, "of 3 groups of 8 experts");
    block_begin(&k, &settings[0]);
    k.route.rule = settings[3].rule;
    op_route(k.b.tape, k.route);
    refused(&k, "want a selection bias");
    block_begin(&k, &settings[0]);
    k.up.n_experts = 7;
    op_experts_up(k.b.tape, k.up);
    refused(&k, "no multiple of 7 experts");
    block_begin(&k, &settings[1]);
    k.up.gate_bias = NULL;
    op_experts_up(k.b.tape, k.up);
    refused(&k, "want both or neither");
    block_begin(&k, &settings[1]);
    k.down.bias = k.up.gate_bias;
    op_experts_down(k.b.tape, k.down);
    refused(&k, "want one row of 280");
}

// A device whose table has an empty entry for one of the three operations.
static void a_device_without_kernels_says_so(void **state)
{
    static const uint16_t missing[] = { OP_route, OP_experts_up, OP_experts_down };
    const struct weight nothing = { 0 };

    (void)state;
    for (int i = 0; i < 3; i++) {
        const struct cpu_op *ops[N_OPS];
        struct cpu_table table = { ops, N_OPS, cpu_table.pack };
        struct err err = { 0 };
        memcpy(ops, cpu_table.ops, sizeof ops);
        ops[missing[i]] = NULL;
        struct device *d = cpu_open(&(struct cpu_options){ .n_threads = 1, .table = &table }, &err);
        struct tape *t = tape_create(d, (struct tape_limits){ .max_rows = 1, .max_outputs = 1 });
        if (missing[i] == OP_route)
            op_route(t, (struct route){ .router = &nothing });
        else if (missing[i] == OP_experts_up)
            op_experts_up(t, (struct experts_up){ .gate = &nothing });
        else
            op_experts_down(t, (struct experts_down){ .down = &nothing });
        assert_false(tape_seal(t, &err));
        assert_non_null(strstr(err.message, "experts have no kernels on this device yet; use device cpu"));
        tape_destroy(t);
        device_close(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_choose_as_written),
        cmocka_unit_test(a_logit_that_is_no_number_ends_the_row),
        cmocka_unit_test(the_plain_loops_are_the_sums_in_double),
        cmocka_unit_test(a_block_in_one_operation_has_the_bits_of_its_parts),
        cmocka_unit_test(an_experts_factor_multiplies_its_weight),
        cmocka_unit_test(tapes_that_want_parts_record_them),
        cmocka_unit_test(blocks_are_close_to_the_plain_loops),
        cmocka_unit_test(a_row_has_the_same_bits_in_any_batch),
        cmocka_unit_test(many_rows_have_the_same_bits),
        cmocka_unit_test(a_bad_row_stays_alone),
        cmocka_unit_test(misfits_are_refused),
        cmocka_unit_test(a_device_without_kernels_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
