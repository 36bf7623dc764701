// test_recurrent.c - operations that carry a state from row to row: vector kernels against the plain loops,
// and the same bits of outputs and states in any chunks, in any company, and from a state that was kept.
#include "ops/conv_step/conv_step.h"
#include "ops/gated_norm/gated_norm.h"
#include "ops/scan/scan.h"
#include "op_harness.h"

enum { ROWS = 70, MOST_STATES = 9, STATE_AT = 5 };

struct conv_case {
    uint32_t n_channels, kernel, flags;
    bool bias;
};
struct scan_case {
    uint32_t n_heads, n_k_heads, d_k, d_v, flags;
    float key_size; // of keys: the small eps shows
};
struct recurrent { // one case: a convolution, or a scan
    struct conv_case conv;
    struct scan_case scan;
};

struct recurrent_rig {
    struct bench b;
    const struct recurrent *c;
    float *in, *out, *states;
    uint32_t n_in, n_out, n_words, n_state;
};

static const struct recurrent cases[] = {
    { .conv = { 36, 3, CONV_FACTOR | CONV_GATE, false } },
    { .conv = { 200, 4, CONV_SILU, false } },
    { .conv = { 65, 2, CONV_SILU | CONV_GATE, true } },
    { .conv = { 7, 8, CONV_FACTOR, true } },
    { .conv = { 64, 5, 0, false } },
    { .scan = { 6, 3, 16, 32, SCAN_DELTA, 1 } },
    { .scan = { 4, 2, 128, 128, SCAN_DELTA | SCAN_TILED | SCAN_LOG_A, 1 } },
    { .scan = { 9, 3, 13, 39, SCAN_DELTA | SCAN_TILED, 1e-3f } },
    { .scan = { 2, 1, 256, 5, SCAN_DELTA | SCAN_LOG_A, 1 } },
    { .scan = { 6, 2, 24, 20, SCAN_LOG_A, 1 } },
};
enum { N_CASES = sizeof cases / sizeof *cases };

// in has the factor, something unused, the input and the gate.
static void record_conv(struct recurrent_rig *r, struct state_rows states)
{
    const struct conv_case *c = &r->c->conv;
    uint32_t n = c->n_channels;
    const struct weight *w = bench_weight(&r->b, QUANT_F32, 1, n * c->kernel),
                        *bias = c->bias ? bench_weight(&r->b, QUANT_F32, 1, n) : NULL;
    struct tensor in = bench_tensor(&r->b, r->n_in, ROWS_STEP, &r->in),
                  out = bench_tensor(&r->b, n, ROWS_STEP, &r->out);

    op_conv_step(r->b.tape, (struct conv_step){ .out = out,
                                                .in = in,
                                                .w = w,
                                                .bias = bias,
                                                .states = states,
                                                .state_at = STATE_AT,
                                                .at = n + 3,
                                                .factor_at = 0,
                                                .gate_at = 2 * n + 3,
                                                .flags = c->flags });
}

// in has v, something unused, k, q, steps and betas. Some heads decay to nothing in a row, others hardly.
static void record_scan(struct recurrent_rig *r, struct state_rows states)
{
    const struct scan_case *c = &r->c->scan;
    uint32_t n_k = c->n_k_heads * c->d_k, n_v = c->n_heads * c->d_v;
    const struct weight *a = bench_weight(&r->b, QUANT_F32, 1, c->n_heads),
                        *bias = bench_weight(&r->b, QUANT_F32, 1, c->n_heads),
                        *d = bench_weight(&r->b, QUANT_F32, 1, c->n_heads);
    struct tensor in = bench_tensor(&r->b, r->n_in, ROWS_STEP, &r->in),
                  out = bench_tensor(&r->b, n_v, ROWS_STEP, &r->out);

    for (uint32_t h = 0; h < c->n_heads; h++)
        ((float *)a->buffer.host)[h] = c->flags & SCAN_LOG_A ? 4 - 2 * (float)h : -expf(3 - 2 * (float)h);
    op_scan(r->b.tape, (struct scan){ .out = out,
                                      .in = in,
                                      .dt = in,
                                      .beta = in,
                                      .a = a,
                                      .dt_bias = bias,
                                      .d = c->flags & SCAN_DELTA ? NULL : d,
                                      .states = states,
                                      .state_at = STATE_AT,
                                      .n_heads = c->n_heads,
                                      .n_k_heads = c->n_k_heads,
                                      .d_k = c->d_k,
                                      .d_v = c->d_v,
                                      .v_at = 0,
                                      .k_at = n_v + 3,
                                      .q_at = n_v + 3 + n_k,
                                      .dt_at = n_v + 3 + 2 * n_k,
                                      .beta_at = n_v + 3 + 2 * n_k + c->n_heads,
                                      .flags = c->flags,
                                      .t_min = 0.3f,
                                      .t_max = 0.9f });
}

static void rig_open(struct recurrent_rig *r, const struct recurrent *c, const struct cpu_options *options)
{
    const struct scan_case *s = &c->scan;
    bool conv = c->conv.kernel > 0;

    *r = (struct recurrent_rig){ .c = c };
    r->n_out = conv ? c->conv.n_channels : s->n_heads * s->d_v;
    r->n_in = conv ? 3 * r->n_out + 3 : r->n_out + 3 + 2 * s->n_k_heads * s->d_k + 2 * s->n_heads;
    r->n_state = conv ? (c->conv.kernel - 1) * r->n_out : s->n_heads * s->d_k * s->d_v;
    r->n_words = STATE_AT + r->n_state + 2;
    bench_open(&r->b, options, (struct tape_limits){ .max_rows = 2 * ROWS, .max_outputs = 1 });
    bench_seed(r->n_out);
    struct buffer *states = bench_buffer(&r->b, MOST_STATES * (uint64_t)r->n_words * 4);
    r->states = states->host;
    memset(r->states, 0xff, states->bytes); // NaN, which nobody may read
    (conv ? record_conv : record_scan)(r, (struct state_rows){ states, r->n_words });
    bench_seal(&r->b);
}

static float scale_of(const struct recurrent_rig *r, uint32_t column)
{
    const struct scan_case *c = &r->c->scan;
    uint32_t first = r->n_out + 3;

    return c->d_k && column >= first && column < first + c->n_k_heads * c->d_k ? c->key_size : 1;
}

// Adds rows [first, first + n) of a sequence to the step.
static void add_rows(struct recurrent_rig *r, uint32_t sequence, uint32_t first, uint32_t n,
                     const uint32_t states[2])
{
    struct step *s = bench_step(&r->b);

    for (uint32_t i = 0; i < n; i++, s->n_rows++) {
        ((uint32_t *)step_states_from(s))[s->n_rows] = i ? STATE_NEXT : states[0];
        ((uint32_t *)step_states_to(s))[s->n_rows] = i + 1 < n ? STATE_NONE : states[1];
        bench_seed(sequence * 1000 + first + i + 1);
        for (uint32_t c = 0; c < r->n_in; c++)
            r->in[(size_t)s->n_rows * r->n_in + c] = bench_normal() * scale_of(r, c);
    }
}

struct rows_made {
    float *out, *state;    // [ROWS, n_out]; behind the last row
    size_t n_out, n_state; // of a row
};

static void made_free(struct rows_made *m)
{
    mem_free(m->out);
    mem_free(m->state);
}

static float *state_row(const struct recurrent_rig *r, uint32_t row)
{
    return r->states + (size_t)row * r->n_words + STATE_AT;
}

// A sequence in steps of `chunk` rows; the state moves between two rows.
static struct rows_made play_chunks(const struct recurrent *c, const struct cpu_options *options,
                                    uint32_t chunk)
{
    struct recurrent_rig r;

    rig_open(&r, c, options);
    struct rows_made m = { mem_alloc_array((size_t)ROWS * r.n_out, 4), mem_alloc_array(r.n_state, 4), r.n_out,
                           r.n_state };
    for (uint32_t first = 0, turn = 0; first < ROWS; first += chunk, turn ^= 1) {
        uint32_t n = ROWS - first < chunk ? ROWS - first : chunk;
        bench_step(&r.b)->n_rows = 0;
        add_rows(&r, 1, first, n, (uint32_t[]){ first ? 2 + turn : STATE_ZERO, 3 - turn });
        bench_play(&r.b);
        memcpy(m.out + (size_t)first * r.n_out, r.out, (size_t)n * r.n_out * 4);
        memcpy(m.state, state_row(&r, 3 - turn), m.n_state * 4);
    }
    bench_close(&r.b);
    return m;
}

static void vector_kernels_give_what_the_plain_loops_give(void **state)
{
    uint32_t features[8], n_features = bench_features(features);

    (void)state;
    for (uint32_t i = 0; i < N_CASES; i++) {
        struct rows_made plain = play_chunks(&cases[i], &(struct cpu_options){ .plain = true }, ROWS);
        for (uint32_t f = 0; f < n_features; f++) {
            struct rows_made fast =
                play_chunks(&cases[i], &(struct cpu_options){ .features = features[f] }, ROWS);
            double error = bench_error(plain.out, fast.out, ROWS * plain.n_out);
            if (!(error <= 1e-12))
                fail_msg("case %u: squared error %g; want at most 1e-12", i, error);
            made_free(&fast);
        }
        made_free(&plain);
    }
}

static void any_chunks_give_the_same_bits(void **state)
{
    static const uint32_t chunks[] = { 1, 2, 3, 17, 64 };

    (void)state;
    for (uint32_t i = 0; i < 2 * N_CASES; i++) {
        const struct recurrent *c = &cases[i / 2];
        struct cpu_options options = { .plain = i % 2, .n_threads = 1 + i % 3 };
        struct rows_made whole = play_chunks(c, &options, ROWS);
        for (uint32_t k = 0; k < sizeof chunks / sizeof *chunks; k++) {
            struct rows_made parts = play_chunks(c, &options, chunks[k]);
            assert_memory_equal(whole.out, parts.out, ROWS * whole.n_out * 4);
            assert_memory_equal(whole.state, parts.state, whole.n_state * 4);
            made_free(&parts);
        }
        made_free(&whole);
    }
}

// Three sequences in a step: one begins, one goes on from a state that another also goes on from.
static void company_and_kept_states_do_not_change_a_bit(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_CASES; i++) {
        const struct recurrent *c = &cases[i];
        struct cpu_options options = { .n_threads = 2 };
        struct rows_made alone = play_chunks(c, &options, ROWS);
        size_t n = alone.n_out;
        struct recurrent_rig r;
        rig_open(&r, c, &options);
        add_rows(&r, 1, 0, 40, (uint32_t[]){ STATE_ZERO, 0 });
        ((uint32_t *)step_states_to(bench_step(&r.b)))[30] = 4; // kept on the way: behind 31 rows
        bench_play(&r.b);
        bench_step(&r.b)->n_rows = 0;
        add_rows(&r, 2, 0, 5, (uint32_t[]){ STATE_ZERO, 1 });
        add_rows(&r, 1, 31, ROWS - 31, (uint32_t[]){ 4, 2 });
        add_rows(&r, 1, 31, 3, (uint32_t[]){ 4, 3 });
        add_rows(&r, 1, 40, 2, (uint32_t[]){ 0, 0 });
        bench_play(&r.b);
        assert_memory_equal(r.out + 5 * n, alone.out + 31 * n, (ROWS - 31) * n * 4);
        assert_memory_equal(r.out + (5 + ROWS - 31) * n, alone.out + 31 * n, 3 * n * 4);
        assert_memory_equal(r.out + (8 + ROWS - 31) * n, alone.out + 40 * n, 2 * n * 4);
        assert_memory_equal(state_row(&r, 2), alone.state, alone.n_state * 4);
        bench_close(&r.b);
        made_free(&alone);
    }
}

// As drafted tokens do: each row leaves its state, the first one where the state before it lay. Any of them
// can be gone on from.
static void the_state_behind_any_row_can_be_gone_on_from(void **state)
{
    enum { BEFORE = 9, DRAFTED = 7 };

    (void)state;
    for (uint32_t i = 0; i < N_CASES; i++) {
        struct cpu_options options = { .plain = i % 2 };
        struct rows_made alone = play_chunks(&cases[i], &options, ROWS);
        size_t n = alone.n_out;
        for (uint32_t counts = 0; counts <= DRAFTED; counts++) {
            struct recurrent_rig r;
            rig_open(&r, &cases[i], &options);
            add_rows(&r, 1, 0, BEFORE, (uint32_t[]){ STATE_ZERO, 0 });
            bench_play(&r.b);
            bench_step(&r.b)->n_rows = 0;
            add_rows(&r, 1, BEFORE, 1 + counts, (uint32_t[]){ 0, 0 });
            if (counts < DRAFTED) // and others are refused
                add_rows(&r, 2, 0, DRAFTED - counts, (uint32_t[]){ STATE_NEXT, 0 });
            for (uint32_t row = 0; row <= DRAFTED; row++) {
                ((uint32_t *)step_states_from(bench_step(&r.b)))[row] = row ? STATE_NEXT : 0;
                ((uint32_t *)step_states_to(bench_step(&r.b)))[row] = row;
            }
            bench_play(&r.b);
            assert_memory_equal(r.out, alone.out + BEFORE * n, (1 + counts) * n * 4);
            bench_step(&r.b)->n_rows = 0;
            add_rows(&r, 1, BEFORE + 1 + counts, ROWS - BEFORE - 1 - counts, (uint32_t[]){ counts, 8 });
            bench_play(&r.b);
            assert_memory_equal(r.out, alone.out + (BEFORE + 1 + counts) * n,
                                (ROWS - BEFORE - 1 - counts) * n * 4);
            assert_memory_equal(state_row(&r, 8), alone.state, alone.n_state * 4);
            bench_close(&r.b);
        }
        made_free(&alone);
    }
}

// ---- the gated norm

struct gated_case {
    uint32_t n_groups, n, flags;
    bool scale, own_scales;
};

static float *play_gated(const struct gated_case *c, const struct cpu_options *options)
{
    struct bench b;
    float *in, *z, *out;
    uint32_t n_cols = c->n_groups * c->n;

    bench_open(&b, options, (struct tape_limits){ .max_rows = 9, .max_outputs = 1 });
    bench_seed(n_cols);
    struct gated_norm g = { .in = bench_tensor(&b, n_cols, ROWS_STEP, &in),
                            .z = bench_tensor(&b, n_cols + 7, ROWS_STEP, &z),
                            .out = bench_tensor(&b, n_cols, ROWS_STEP, &out),
                            .n_groups = c->n_groups,
                            .z_at = 7,
                            .flags = c->flags,
                            .eps = 1e-2f };
    if (c->scale)
        g.scale = bench_weight(&b, QUANT_F32, 1, c->own_scales ? n_cols : c->n);
    op_gated_norm(b.tape, g);
    bench_seal(&b);
    bench_step(&b)->n_rows = 9;
    bench_play(&b);
    float *copy = mem_alloc_array((size_t)9 * n_cols, 4);
    memcpy(copy, out, (size_t)9 * n_cols * 4);
    bench_close(&b);
    return copy;
}

static void gated_norms_are_those_of_the_plain_loops(void **state)
{
    static const struct gated_case gated[] = {
        { 3, 16, 0, true, false },
        { 2, 128, GATED_FIRST, true, true },
        { 5, 7, GATED_SIGMOID, false, false },
        { 1, 65, GATED_FIRST, true, false },
        { 4, 33, 0, true, true },
    };
    uint32_t features[8], n_features = bench_features(features);

    (void)state;
    for (uint32_t i = 0; i < sizeof gated / sizeof *gated; i++) {
        float *plain = play_gated(&gated[i], &(struct cpu_options){ .plain = true });
        for (uint32_t f = 0; f < n_features; f++) {
            float *fast =
                play_gated(&gated[i], &(struct cpu_options){ .features = features[f], .n_threads = 2 });
            double error = bench_error(plain, fast, (size_t)9 * gated[i].n_groups * gated[i].n);
            if (!(error <= 1e-12))
                fail_msg("case %u: squared error %g; want at most 1e-12", i, error);
            mem_free(fast);
        }
        mem_free(plain);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vector_kernels_give_what_the_plain_loops_give),
        cmocka_unit_test(any_chunks_give_the_same_bits),
        cmocka_unit_test(gated_norms_are_those_of_the_plain_loops),
        cmocka_unit_test(company_and_kept_states_do_not_change_a_bit),
        cmocka_unit_test(the_state_behind_any_row_can_be_gone_on_from),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
