// test_cost.c - what a command must move and compute, against sums by hand.
#include "ops/attend/attend.h"
#include "ops/cost.h"
#include "ops/embed/embed.h"
#include "ops/experts/experts.h"
#include "ops/gate_up/gate_up.h"
#include "ops/matmul/matmul.h"
#include "ops/step_rows.h"

static const struct cpu_options plain = { .plain = true };
static const struct tape_limits limits = { .max_rows = 8, .max_outputs = 2 };

static struct cost cost_of_last(struct bench *b)
{
    bench_seal(b);
    return cost_of_command(b->tape, tape_command(b->tape, tape_n_commands(b->tape) - 1), bench_step(b));
}

static void a_product_reads_its_weight_once_and_its_rows(void **state)
{
    struct bench b;

    (void)state;
    bench_open(&b, &plain, limits);
    struct tensor in = bench_tensor(&b, 64, ROWS_STEP, NULL), out = bench_tensor(&b, 48, ROWS_STEP, NULL);
    op_matmul(b.tape, (struct matmul){ .in = in, .out = out, .w = bench_weight(&b, QUANT_Q8_0, 48, 64) });
    bench_step(&b)->n_rows = 5;
    struct cost c = cost_of_last(&b);
    assert_true(c.weight_bytes == 48 * 64 / 32 * 34 && c.value_bytes == 5 * (64 + 48) * 4);
    assert_true(c.operations == 2.0 * 5 * 48 * 64 && c.page_bytes == 0);
    bench_close(&b);
}

static void the_head_counts_output_rows(void **state)
{
    struct bench b;

    (void)state;
    bench_open(&b, &plain, limits);
    struct tensor in = bench_tensor(&b, 64, ROWS_OUTPUT, NULL), out = bench_tensor(&b, 96, ROWS_OUTPUT, NULL);
    op_matmul(b.tape, (struct matmul){ .in = in, .out = out, .w = bench_weight(&b, QUANT_F32, 96, 64) });
    bench_step(&b)->n_rows = 7;
    bench_step(&b)->n_outputs = 2;
    struct cost c = cost_of_last(&b);
    assert_true(c.operations == 2.0 * 2 * 96 * 64 && c.value_bytes == 2 * (64 + 96) * 4);
    bench_close(&b);
}

static void two_matrices_and_a_norm(void **state)
{
    struct bench b;

    (void)state;
    bench_open(&b, &plain, limits);
    struct gate_up g = { .in = bench_tensor(&b, 32, ROWS_STEP, NULL),
                         .out = bench_tensor(&b, 40, ROWS_STEP, NULL) };
    g.norm = bench_weight(&b, QUANT_F32, 1, 32);
    g.gate = bench_weight(&b, QUANT_F32, 40, 32);
    g.up = bench_weight(&b, QUANT_F32, 40, 32);
    g.eps = 1e-5f;
    op_gate_up(b.tape, g);
    bench_step(&b)->n_rows = 3;
    struct cost c = cost_of_last(&b);
    assert_true(c.operations == 2 * 2.0 * 3 * 40 * 32 && c.weight_bytes == (2 * 40 * 32 + 32) * 4);
    bench_close(&b);
}

static void an_embedding_reads_its_rows_alone(void **state)
{
    struct bench b;

    (void)state;
    bench_open(&b, &plain, limits);
    struct embed e = { .out = bench_tensor(&b, 64, ROWS_STEP, NULL),
                       .table = bench_weight(&b, QUANT_Q8_0, 1000, 64),
                       .history = bench_buffer(&b, 64),
                       .history_stride = 4,
                       .scale = 1 };
    op_embed(b.tape, e);
    bench_step(&b)->n_rows = 3;
    struct cost c = cost_of_last(&b);
    assert_true(c.weight_bytes == 3 * 2 * 34 && c.operations == 0);
    bench_close(&b);
}

// Two sequences, one of them with two rows: K and V of each are read once.
static void attention_counts_pairs_and_reads_each_sequence_once(void **state)
{
    static const struct rows rows = { .n = 3, .slot = { 0, 1, 1 }, .position = { 9, 19, 20 } };
    struct bench b;

    (void)state;
    for (uint32_t window = 0; window <= 8; window += 8) {
        bench_open(&b, &plain, limits);
        struct page_shape shape = { 2, 16, 2, KV_F16, KV_F32 };
        struct attend a = { .q = bench_tensor(&b, 4 * 16, ROWS_STEP, NULL),
                            .out = bench_tensor(&b, 4 * 16, ROWS_STEP, NULL),
                            .pages = { bench_buffer(&b, 1 << 14), bench_buffer(&b, 1 << 14),
                                       bench_buffer(&b, 64), shape },
                            .window = window,
                            .scale = 1 };
        op_attend(b.tape, a);
        fill_step(&b, &rows);
        struct cost c = cost_of_last(&b);
        double pairs = window ? 3 * 8 : 10 + 20 + 21, tokens = window ? 8 + 9 : 10 + 21;
        assert_true(c.operations == 4 * pairs * 4 * 16);
        assert_true(c.page_bytes == tokens * 2 * 16 * (2 + 4));
        bench_close(&b);
    }
}

// A row reads its two experts of eight; very many rows read all.
static void experts_are_read_by_how_many_rows_choose(void **state)
{
    (void)state;
    for (uint32_t n_rows = 1; n_rows <= 8; n_rows += 7) {
        struct bench b;
        bench_open(&b, &plain, limits);
        struct experts_up x = { .in = bench_tensor(&b, 32, ROWS_STEP, NULL),
                                .ids = bench_tensor(&b, 2, ROWS_STEP, NULL),
                                .out = bench_tensor(&b, 2 * 16, ROWS_STEP, NULL),
                                .gate = bench_weight(&b, QUANT_F32, 8 * 16, 32),
                                .up = bench_weight(&b, QUANT_F32, 8 * 16, 32),
                                .n_experts = 8 };
        op_experts_up(b.tape, x);
        bench_step(&b)->n_rows = n_rows;
        struct cost c = cost_of_last(&b);
        double all = 2 * 8 * 16 * 32 * 4;
        assert_true(c.operations == 2.0 * n_rows * 2 * 16 * 32 * 2);
        if (n_rows == 1)
            assert_true(c.weight_bytes > 0.2499 * all && c.weight_bytes < 0.2501 * all);
        else
            assert_true(c.weight_bytes > 0.85 * all && c.weight_bytes < all);
        bench_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_product_reads_its_weight_once_and_its_rows),
        cmocka_unit_test(the_head_counts_output_rows),
        cmocka_unit_test(two_matrices_and_a_norm),
        cmocka_unit_test(an_embedding_reads_its_rows_alone),
        cmocka_unit_test(attention_counts_pairs_and_reads_each_sequence_once),
        cmocka_unit_test(experts_are_read_by_how_many_rows_choose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
