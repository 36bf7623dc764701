// test_cost.c - what a command must move and compute, against sums by hand.
#include "ops/attend/attend.h"
#include "ops/cost.h"
#include "ops/embed/embed.h"
#include "ops/experts/experts.h"
#include "ops/gate_up/gate_up.h"
#include "ops/latent_block/latent_block.h"
#include "ops/latent_prompt/latent_prompt.h"
#include "ops/matmul/matmul.h"
#include "ops/patches/patches.h"
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

// Every matrix is multiplied with; tables are not.
static void a_table_of_pixels_is_not_multiplied_with(void **state)
{
    struct bench b;

    (void)state;
    bench_open(&b, &plain, limits);
    struct patches p = { .out = bench_tensor(&b, 3 * 4 * 4, ROWS_STEP, NULL),
                         .pixels = bench_buffer(&b, 2 * 3 * 8 * 8),
                         .table = bench_weight(&b, QUANT_F32, 3, 256),
                         .side = 8,
                         .patch = 4 };
    op_patches(b.tape, p);
    bench_step(&b)->n_rows = 4;
    struct cost cost = cost_of_last(&b);
    assert_true(cost.operations == 0 && cost.weight_bytes == 3 * 256 * 4);
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

// A layer's attention in one command: its products, the key that it stores, and those that it attends to.
static void a_block_counts_the_pages_of_its_parts(void **state)
{
    enum {
        COLS = 32,
        Q_LATENT = 16,
        HEADS = 2,
        LATENT = 8,
        ROTATED = 4,
        KEY = LATENT + ROTATED,
        N_Q = 10,
        VALUE = 6
    };
    static const struct tape_limits one_row = { .max_rows = 1, .max_outputs = 1 };
    static const struct rows rows = { .n = 1, .slot = { 0 }, .position = { 9 } };
    struct page_shape shape = { 1, KEY, 2, KV_F16, KV_F16 };
    struct bench b;

    (void)state;
    bench_open(&b, &plain, one_row);
    struct tensor x = bench_tensor(&b, COLS, ROWS_STEP, NULL),
                  first = tape_tensor(b.tape, Q_LATENT, ROWS_STEP), kv = tape_tensor(b.tape, KEY, ROWS_STEP),
                  q = tape_tensor(b.tape, HEADS * N_Q, ROWS_STEP),
                  absorbed = tape_tensor(b.tape, HEADS * KEY, ROWS_STEP),
                  attended = tape_tensor(b.tape, HEADS * LATENT, ROWS_STEP),
                  values = tape_tensor(b.tape, HEADS * VALUE, ROWS_STEP),
                  angles = bench_tensor(&b, ROTATED, ROWS_STEP, NULL);
    struct pages pages = { bench_buffer(&b, 1 << 14), NULL, bench_buffer(&b, 64), shape };
    struct latent_block l = {
        .down = { .in = x, .out = first, .more = kv, .eps = 1e-5f },
        .up = { .in = first, .out = q, .eps = 1e-5f },
        .store = { .in = kv, .angles = angles, .pages = pages, .eps = 1e-5f },
        .absorb = { .in = q, .angles = angles, .out = absorbed, .n_heads = HEADS },
        .attend = { .q = absorbed, .out = attended, .pages = pages, .latent_dims = LATENT, .scale = 1 },
        .expand = { .in = attended, .out = values, .n_heads = HEADS },
        .out = { .in = values, .add = x, .out = x },
    };
    l.down.norm = bench_weight(&b, QUANT_F32, 1, COLS);
    l.down.w = bench_weight(&b, QUANT_F32, Q_LATENT, COLS);
    l.down.v = bench_weight(&b, QUANT_F32, KEY, COLS);
    l.up.norm = bench_weight(&b, QUANT_F32, 1, Q_LATENT);
    l.up.w = bench_weight(&b, QUANT_F32, HEADS * N_Q, Q_LATENT);
    l.store.norm = bench_weight(&b, QUANT_F32, 1, LATENT);
    l.absorb.w = bench_weight(&b, QUANT_F32, HEADS * LATENT, N_Q - ROTATED);
    l.expand.w = bench_weight(&b, QUANT_F32, HEADS * VALUE, LATENT);
    l.out.w = bench_weight(&b, QUANT_F32, COLS, HEADS * VALUE);
    assert_true(op_latent_block(b.tape, &l));
    fill_step(&b, &rows);
    struct cost c = cost_of_last(&b);
    double products = Q_LATENT * COLS + KEY * COLS + HEADS * N_Q * Q_LATENT +
                      HEADS * LATENT * (N_Q - ROTATED) + HEADS * VALUE * LATENT + COLS * HEADS * VALUE;
    assert_true(c.page_bytes == (1 + 10) * KEY * 2);
    assert_true(c.operations == 2 * products + 2 * 10 * HEADS * (KEY + LATENT));
    bench_close(&b);
}

// Attention of a prompt, as small as it can be.
enum { P_HEADS = 2, P_LATENT = 8, P_ROTATED = 4, P_KEY = P_LATENT + P_ROTATED, P_X = 6, P_VALUE = 6 };
static bool record_prompt(struct bench *b, enum kv_format format)
{
    struct page_shape shape = { 1, P_KEY, 32, (u16)format, (u16)format };
    struct tensor kv = bench_tensor(b, P_KEY, ROWS_STEP, NULL),
                  q = bench_tensor(b, P_HEADS * (P_X + P_ROTATED), ROWS_STEP, NULL),
                  angles = bench_tensor(b, P_ROTATED, ROWS_STEP, NULL),
                  absorbed = tape_tensor(b->tape, P_HEADS * P_KEY, ROWS_STEP),
                  attended = tape_tensor(b->tape, P_HEADS * P_LATENT, ROWS_STEP),
                  values = bench_tensor(b, P_HEADS * P_VALUE, ROWS_STEP, NULL);
    struct pages pages = { bench_buffer(b, 1 << 16), NULL, bench_buffer(b, 256), shape };
    struct latent_prompt p = { .store = { kv, bench_weight(b, QUANT_F32, 1, P_LATENT), angles, pages,
                                          ROPE_ADJACENT, 1e-5f },
                               .absorb = { absorbed, q, bench_weight(b, QUANT_F32, P_HEADS * P_LATENT, P_X),
                                           angles, P_HEADS, ROPE_ADJACENT },
                               .attend = { attended, absorbed, pages, P_LATENT, 1 },
                               .expand = { .out = values,
                                           .in = attended,
                                           .w = bench_weight(b, QUANT_F32, P_HEADS * P_VALUE, P_LATENT),
                                           .n_heads = P_HEADS } };
    return op_latent_prompt(b->tape, &p);
}

// A prompt behind a past is expanded, the row beside it is not: two sequences, one row at 9 and 300 from 20
// on.
static void a_prompt_counts_the_form_that_it_takes(void **state)
{
    enum { LONG = 300, PAST = 20 };
    static const struct tape_limits many = { .max_rows = 512, .max_outputs = 2 };
    struct bench b;

    (void)state;
    bench_open(&b, &plain, many);
    assert_true(record_prompt(&b, KV_F16));
    struct step *step = bench_step(&b);
    step->n_rows = LONG + 1;
    for (uint32_t r = 0; r <= LONG; r++) {
        ((uint32_t *)step_positions(step))[r] = r == 0 ? 9 : PAST + r - 1;
        ((uint32_t *)step_slots(step))[r] = r > 0;
    }
    struct cost c = cost_of_last(&b);
    double matrices = 2.0 * P_HEADS * P_LATENT * (P_X + P_VALUE),
           pairs = LONG * PAST + LONG * (LONG + 1) / 2.0;
    assert_true(c.page_bytes == (LONG + 1 + LONG + PAST + 10) * P_KEY * 2);
    assert_true(c.operations == matrices * (LONG + 1 + PAST) +
                                    2 * P_HEADS * pairs * (P_X + P_ROTATED + P_VALUE) +
                                    2.0 * P_HEADS * 10 * (P_KEY + P_LATENT));
    bench_close(&b);
}

// Few rows, modes in which a row's form may not depend on its neighbours, and other pages than F16.
static void some_tapes_take_the_parts_of_a_prompt(void **state)
{
    static const struct {
        struct tape_limits limits;
        enum kv_format format;
    } tapes[] = { { { .max_rows = 2 * LATENT_PROMPT_ROWS - 1, .max_outputs = 1 }, KV_F16 },
                  { { .max_rows = 512, .max_outputs = 1, .invariant = true }, KV_F16 },
                  { { .max_rows = 512, .max_outputs = 1, .exact = true }, KV_F16 },
                  { { .max_rows = 512, .max_outputs = 1, .parts = true }, KV_F16 },
                  { { .max_rows = 512, .max_outputs = 1 }, KV_BF16 } };

    (void)state;
    for (size_t i = 0; i < sizeof tapes / sizeof *tapes; i++) {
        struct bench b;
        bench_open(&b, &plain, tapes[i].limits);
        assert_false(record_prompt(&b, tapes[i].format));
        assert_int_equal(tape_n_commands(b.tape), 0);
        bench_close(&b);
    }
}

// What a device waits for at a border is no operation.
static void borders_cost_nothing(void **state)
{
    static const uint16_t ops[] = { TAPE_TELL, TAPE_ALL_GATHER, TAPE_ALL_REDUCE, TAPE_BORDER };
    struct bench b;

    (void)state;
    bench_open(&b, &plain, limits);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        struct command c = { .op = ops[i] };
        struct cost cost = cost_of_command(b.tape, &c, bench_step(&b));
        assert_true(cost_bytes(&cost) == 0 && cost.operations == 0);
    }
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_product_reads_its_weight_once_and_its_rows),
        cmocka_unit_test(the_head_counts_output_rows),
        cmocka_unit_test(two_matrices_and_a_norm),
        cmocka_unit_test(an_embedding_reads_its_rows_alone),
        cmocka_unit_test(a_table_of_pixels_is_not_multiplied_with),
        cmocka_unit_test(attention_counts_pairs_and_reads_each_sequence_once),
        cmocka_unit_test(experts_are_read_by_how_many_rows_choose),
        cmocka_unit_test(a_block_counts_the_pages_of_its_parts),
        cmocka_unit_test(a_prompt_counts_the_form_that_it_takes),
        cmocka_unit_test(some_tapes_take_the_parts_of_a_prompt),
        cmocka_unit_test(borders_cost_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
