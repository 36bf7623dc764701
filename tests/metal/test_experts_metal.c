// test_experts_metal.c - the Metal kernels of route, experts_up and experts_down against their plain loops:
// rules, ties, formats, odd widths, every number of rows; and a row's bits against the company it is in.
#include "emu_modes.h"
#include "ops/experts_sides.h"

static const struct rows_of_experts {
    uint32_t rows, most;
} row_cases[] = { { 1, 1 }, { 3, 16 }, { 0, 16 }, { 21, 32 }, { 7, 70 }, { 67, 70 } };
enum { N_ROW_CASES = sizeof row_cases / sizeof *row_cases };

static void routers_of_every_rule(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_ROUTERS; i++)
        for (uint32_t r = 0; r < N_ROW_CASES; r++) {
            struct op_shape c = { .format = QUANT_F32,
                                  .rows = row_cases[r].rows,
                                  .most_rows = row_cases[r].most,
                                  .n_cols = i % 2 ? 61 : 96,
                                  .bias = i % 3 == 2,
                                  .limit = 1e-10 };
            if (routers[i].n_experts > 200 && c.rows > 3)
                continue; // the plain loop's time
            experts_shape = routers[i];
            sides_check(gpu, "route", &c, record_route);
        }
    for (enum quant q = 0; q < N_WEIGHT_QUANTS; q++) {
        struct op_shape c = { .format = q, .rows = 11, .most_rows = 16, .n_cols = 512, .limit = 1e-10 };
        experts_shape = routers[2];
        sides_check(gpu, "route", &c, record_route);
    }
}

// What a side's play of a step of three rows chooses.
static void play_route(struct side *side, const void *in, uint64_t at, uint64_t bytes, float *ids)
{
    struct err err = { 0 };

    assert_ok(buffer_write(&side->buffers[0], at, in, bytes, &err), &err);
    assert_ok(tape_play(side->tape, &side->step, &err), &err);
    assert_ok(buffer_read(&side->buffers[side->n_buffers - 2], 0, ids, 3 * experts_shape.n_slots * 4, &err),
              &err);
}

static void expect_no_weights(struct side *s)
{
    float weights[33];
    uint64_t bytes = (experts_shape.n_slots + 1) * 4;
    struct err err = { 0 };

    assert_ok(buffer_read(&s->buffers[s->n_buffers - 1], bytes, weights, bytes, &err), &err);
    for (uint32_t j = 0; j <= experts_shape.n_slots; j++)
        assert_true(isnan(weights[j]));
}

// Rows of zeros choose 0, 1, ...; a row with a NaN or an infinity too, and has no weights. What an infinity
// makes of normed is open: its norm's factor may be 0 or, with fast math, none.
static void routers_with_ties_and_bad_rows(void **state)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    static float zeros[3 * 64];

    (void)state;
    for (uint32_t i = 0; i < N_ROUTERS * 4; i++) {
        struct op_shape c = { .format = QUANT_F32, .rows = 3, .most_rows = 4, .n_cols = 64, .limit = 1e-12 };
        bool ties = i % 4 == 3;
        struct sides s;
        float ids[2][96];
        experts_shape = routers[i / 4];
        experts_shape.select_bias = false;
        experts_shape.rule.rank = ROUTE_BEST;
        sides_open(&s, gpu, &c, record_route);
        for (uint32_t k = 0; k < 2; k++)
            play_route(k ? &s.fast : &s.plain, ties ? zeros : &bad[i % 4], ties ? 0 : 65 * 4,
                       ties ? sizeof zeros : 4, ids[k]);
        assert_memory_equal(ids[0], ids[1], 3 * experts_shape.n_slots * 4);
        if (!ties)
            expect_no_weights(&s.fast);
        if (i % 4 == 0 || ties)
            sides_compare(&s, "route", &c);
        sides_close(&s);
    }
}

// Squared errors: fp32 sums in another order; and weights rounded to half.
#define FP32_LIMIT 1e-10
#define HALF_LIMIT 1e-5

static void compare_experts(struct op_shape *c)
{
    enum quant shared = experts_shape.n_shared ? experts_shape.shared : QUANT_F32;
    bool half = c->most_rows > 32 && !c->exact && !c->invariant &&
                ((c->format != QUANT_F32 && c->format != QUANT_BF16) || shared > QUANT_F32);

    c->limit = half ? HALF_LIMIT : FP32_LIMIT;
    sides_check(gpu, "experts_up", c, record_experts_up);
    sides_check(gpu, "experts_down", c, record_experts_down);
}

// Each format with one row, a few, and one other number of rows.
static void experts_of_every_format(void **state)
{
    (void)state;
    for (enum quant q = 0; q < N_WEIGHT_QUANTS; q++)
        for (uint32_t i = 0; i < 3; i++) {
            uint32_t r = i < 2 ? i : 2 + q % (N_ROW_CASES - 2);
            struct op_shape c = { .format = q,
                                  .rows = row_cases[r].rows,
                                  .most_rows = row_cases[r].most,
                                  .n_cols = 256,
                                  .n_out = 19,
                                  .bias = q % 2 };
            experts_shape = (struct experts_shape){ .n_experts = 5,
                                                    .n_slots = 3,
                                                    .shared = (q + r) % N_WEIGHT_QUANTS,
                                                    .n_shared = r % 2 ? 256 : 0,
                                                    .limit = q % 3 == 0 ? 40 : 0,
                                                    .one_for_all = r % 3 == 2 };
            compare_experts(&c);
        }
}

static void experts_in_every_mode(void **state)
{
    (void)state;
    for (enum quant q = 0; q < N_WEIGHT_QUANTS; q += 5)
        for (uint32_t mode = 0; mode < 3; mode++) {
            struct op_shape c = { .format = q,
                                  .other = mode == 2 ? (q + 4) % N_WEIGHT_QUANTS : 0,
                                  .rows = 19,
                                  .most_rows = 40,
                                  .n_cols = 256,
                                  .n_out = 21,
                                  .exact = mode == 0,
                                  .invariant = mode == 1,
                                  .bias = true };
            experts_shape = (struct experts_shape){ .n_experts = 5,
                                                    .n_slots = 2,
                                                    .n_shared = 256,
                                                    .shared = (q + 3) % N_WEIGHT_QUANTS,
                                                    .limit = mode == 0 ? 1.5f : 0 };
            compare_experts(&c);
        }
}

// Up to 33 slots of a row, and a shared expert behind hidden numbers of an odd count.
static void experts_of_odd_shapes(void **state)
{
    static const struct {
        uint32_t n_cols, n_out, n_experts, n_slots, n_shared;
        enum quant format, shared;
    } shapes[] = { { 1, 19, 40, 5, 0, QUANT_F32, QUANT_F32 },     { 7, 19, 40, 5, 7, QUANT_F16, QUANT_F16 },
                   { 40, 33, 33, 32, 24, QUANT_BF16, QUANT_F32 }, { 36, 18, 4, 3, 64, QUANT_F32, QUANT_Q8_0 },
                   { 1056, 5, 3, 1, 12, QUANT_Q4_0, QUANT_F16 },  { 8, 1, 1, 1, 8, QUANT_F32, QUANT_F32 } };

    (void)state;
    for (uint32_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (uint32_t r = 0; r < N_ROW_CASES; r++) {
            struct op_shape c = { .format = shapes[i].format,
                                  .rows = row_cases[r].rows,
                                  .most_rows = row_cases[r].most,
                                  .n_cols = shapes[i].n_cols,
                                  .n_out = shapes[i].n_out,
                                  .bias = r % 2 };
            experts_shape = (struct experts_shape){ .n_experts = shapes[i].n_experts,
                                                    .n_slots = shapes[i].n_slots,
                                                    .n_shared = shapes[i].n_shared,
                                                    .shared = shapes[i].shared };
            c.limit = c.most_rows > 32 ? HALF_LIMIT : FP32_LIMIT;
            sides_check(gpu, "experts_down", &c, record_experts_down);
            experts_shape.shared = c.format; // of as many columns
            sides_check(gpu, "experts_up", &c, record_experts_up);
        }
}

// Gemma 4 adds nothing to the sum; Nemotron's square of ReLU is gate times up of one matrix, which any two
// show.
static void experts_of_other_activations(void **state)
{
    static const enum activation activations[] = { ACTIVATION_GELU_TANH, ACTIVATION_RELU };

    (void)state;
    for (uint32_t i = 0; i < 2 * N_ROW_CASES; i++) {
        struct op_shape c = { .format = i % 4 < 2 ? QUANT_Q4_0 : QUANT_F32,
                              .rows = row_cases[i / 2].rows,
                              .most_rows = row_cases[i / 2].most,
                              .n_cols = 96,
                              .n_out = 19 };
        experts_shape = (struct experts_shape){ .n_experts = 5,
                                                .n_slots = 3,
                                                .n_shared = i % 3 ? 0 : 96,
                                                .shared = QUANT_Q8_0,
                                                .alone = true,
                                                .activation = activations[i % 2] };
        compare_experts(&c);
    }
}

static void experts_of_gpt_oss(void **state)
{
    (void)state;
    for (uint32_t r = 0; r < 2; r++) {
        struct op_shape c = { .format = QUANT_MXFP4,
                              .rows = 1 + 2 * r,
                              .most_rows = 1 + 15 * r,
                              .n_cols = 2880,
                              .n_out = 8,
                              .bias = true };
        experts_shape = (struct experts_shape){ .n_experts = 8, .n_slots = 4, .limit = 7 };
        compare_experts(&c);
    }
}

// The weights are drawn first and all rows choose alike, so that the first row's result is the same for any
// number of rows.
static void record_up_alike(struct side *s, const struct op_shape *c)
{
    const struct experts_shape *e = &experts_shape;
    uint32_t n = e->n_experts * c->n_out;
    struct experts_up x = { .gate = side_weight(s, c->format, n, c->n_cols),
                            .up = side_weight(s, c->other, n, c->n_cols),
                            .shared_gate = side_weight(s, e->shared, e->n_shared, c->n_cols),
                            .shared_up = side_weight(s, e->shared, e->n_shared, c->n_cols),
                            .n_experts = e->n_experts };

    x.in = side_tensor(s, c->n_cols, ROWS_STEP);
    x.ids = side_ids(s);
    x.out = side_tensor(s, experts_hidden_cols(e->n_slots, c->n_out, e->n_shared), ROWS_STEP);
    op_experts_up(s->tape, x);
}

// A tensor whose first row does not depend on what was drawn before.
static struct tensor side_drawn_anew(struct side *s, uint32_t n_cols)
{
    bench_seed(11);
    return side_tensor(s, n_cols, ROWS_STEP);
}

static void record_down_alike(struct side *s, const struct op_shape *c)
{
    const struct experts_shape *e = &experts_shape;
    struct experts_down x = { .down = side_weight(s, c->format, e->n_experts * c->n_out, c->n_cols),
                              .bias = side_vector(s, e->n_experts * c->n_out),
                              .shared = side_weight(s, e->shared, c->n_out, e->n_shared),
                              .n_experts = e->n_experts };

    x.in = side_tensor(s, experts_hidden_cols(e->n_slots, c->n_cols, e->n_shared), ROWS_STEP);
    x.ids = side_ids(s);
    x.weights = side_drawn_anew(s, e->n_slots + 1);
    x.add = side_drawn_anew(s, c->n_out);
    x.out = side_tensor(s, c->n_out, ROWS_STEP);
    op_experts_down(s->tape, x);
}

// The first row of the result, when a step of a tape for most_rows has `rows` rows.
static void first_row(struct op_shape c, uint32_t most_rows, uint32_t rows, record *recording, float *out)
{
    struct side s = { 0 };
    struct err err = { 0 };

    c.most_rows = most_rows;
    c.rows = rows;
    side_open(&s, gpu, &c, recording);
    assert_ok(tape_play(s.tape, &s.step, &err), &err);
    assert_ok(buffer_read(&s.buffers[s.n_buffers - 1], 0, out, 9 * 4, &err), &err);
    side_close(&s);
}

// Alone in a tape for one row; among 29 of one for 32; and with invariant or exact of one for 40.
static void a_row_has_the_same_bits_in_any_company(void **state)
{
    (void)state;
    for (enum quant q = 0; q < N_WEIGHT_QUANTS; q++)
        for (uint32_t way = 0; way < 2; way++) {
            record *recording = way ? record_down_alike : record_up_alike;
            struct op_shape c = { .format = q,
                                  .other = (q + 2) % N_WEIGHT_QUANTS,
                                  .invariant = q % 2,
                                  .exact = q % 2 == 0,
                                  .n_cols = 512,
                                  .n_out = 9 };
            float alone[9], few[9], many[9];
            experts_shape = (struct experts_shape){ .n_experts = 7,
                                                    .n_slots = 3,
                                                    .n_shared = 256,
                                                    .shared = (q + 1) % N_WEIGHT_QUANTS,
                                                    .one_for_all = true };
            first_row(c, 1, 1, recording, alone);
            first_row(c, 32, 29, recording, few);
            first_row(c, 40, 29, recording, many);
            assert_memory_equal(alone, few, sizeof alone);
            assert_memory_equal(alone, many, sizeof alone);
        }
}

static void a_row_is_routed_alike_in_any_company(void **state)
{
    struct op_shape c = { .format = QUANT_F32, .n_cols = 320 };
    float many[9], alone[9];

    (void)state;
    experts_shape = routers[0]; // its eight weights, and the shared expert's
    first_row(c, 40, 29, record_route, many);
    first_row(c, 40, 1, record_route, alone);
    assert_memory_equal(alone, many, sizeof alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routers_of_every_rule),
        cmocka_unit_test(routers_with_ties_and_bad_rows),
        cmocka_unit_test(experts_of_every_format),
        cmocka_unit_test(experts_in_every_mode),
        cmocka_unit_test(experts_of_odd_shapes),
        cmocka_unit_test(experts_of_other_activations),
        cmocka_unit_test(experts_of_gpt_oss),
        cmocka_unit_test(a_row_has_the_same_bits_in_any_company),
        cmocka_unit_test(a_row_is_routed_alike_in_any_company),
    };

    return emu_run_in_modes(tests, sizeof tests / sizeof *tests);
}
