// test_prefill_budget.c - how far a prompt may stretch the steps of running answers, on machines that are
// made up.
#include <math.h>
#include "engine/load/load_shape.h"
#include "engine/prefill_budget.h"
#include "testing.h"

struct machine {
    double decode_ns, row_ns; // a step of answers alone; what a row of a prompt adds
    double many_ns;           // what more than eight rows add beside that, however many
};

// The longest of 400 steps after the first 40 with one answer and a prompt that never ends; *rows: of the
// prompt in all of them.
static double longest_ns(const struct machine *m, uint32_t *rows)
{
    struct prefill_budget pace = { .stretch = 1.75 };
    double longest = 0;

    *rows = 0;
    for (int i = 0; i < 440; i++) {
        uint32_t n = prefill_budget_rows(&pace, 1, 511);
        double ns = m->decode_ns + n * m->row_ns + (n > 8 ? m->many_ns : 0);
        prefill_budget_note(&pace, 1, n, (uint64_t)ns);
        if (i < 40)
            continue;
        longest = ns > longest ? ns : longest;
        *rows += n;
    }
    return longest;
}

static void a_prompt_stretches_no_step_beyond_the_limit(void **state)
{
    const struct machine large = { 10e6, 0.2e6, 0 }, dear = { 20e6, 50e6, 0 };
    uint32_t rows;
    (void)state;
    assert_true(longest_ns(&large, &rows) <= 1.75 * large.decode_ns);
    assert_true(rows > 400 * 30);
    longest_ns(&dear, &rows); // one row is more than the limit allows, but the prompt must go on
    assert_true(rows > 380 && rows <= 400);
}

static void steps_below_sixteen_milliseconds_are_filled(void **state)
{
    const struct machine small = { 0.08e6, 0.025e6, 0 };
    uint32_t rows;
    (void)state;
    assert_true(longest_ns(&small, &rows) <= 16e6);
    assert_true(rows > 380 * 390);
}

// A GPU: beyond eight rows a step costs 3 ms more at once, and then little with each row. Ten rows look as
// if one cost 0.3 ms; the budget must learn that 200 cost no more than 7.
static void rows_that_cost_little_in_company_come_together(void **state)
{
    const struct machine gpu = { 2e6, 0.02e6, 3e6 }, slow_gpu = { 20e6, 0.02e6, 30e6 };
    uint32_t rows;
    (void)state;
    assert_true(longest_ns(&gpu, &rows) <= 16e6);
    assert_true(rows > 380 * 200);
    longest_ns(&slow_gpu, &rows); // room for 15 ms beside answers: eight rows, not more
    assert_true(rows > 360 * 8 && rows < 400 * 10);
}

// What 150 rows cost says nothing of 300: they are tried, and more of them where they cost no more. Where
// they are too dear, less than those follow.
static void a_larger_size_is_tried_once(void **state)
{
    struct prefill_budget flat = { .stretch = 1.75 }, steep;
    (void)state;
    prefill_budget_note(&flat, 1, 0, 5600000);
    prefill_budget_note(&flat, 1, 150, 14500000);
    assert_int_equal(prefill_budget_rows(&flat, 1, 511), 300);
    steep = flat;
    prefill_budget_note(&flat, 1, 300, 14500000);
    assert_int_equal(prefill_budget_rows(&flat, 1, 511), 511);
    prefill_budget_note(&steep, 1, 300, 30000000);
    uint32_t n = prefill_budget_rows(&steep, 1, 511);
    assert_true(n >= 150 && n < 200);
}

// One step that took long, because something was made ready in it, is forgotten.
static void one_slow_step_does_not_last(void **state)
{
    struct prefill_budget pace = { .stretch = 1.75 };
    uint32_t n = 0;
    (void)state;
    prefill_budget_note(&pace, 1, 0, 1000000);
    for (int i = 0; i < 30; i++) {
        n = prefill_budget_rows(&pace, 1, 511);
        prefill_budget_note(&pace, 1, n, 1000000 + (i == 4 ? 300000000 : n * 20000ull));
    }
    assert_true(n > 400);
}

static void without_answers_or_limit_a_prompt_gets_all_rows(void **state)
{
    struct prefill_budget none = { .stretch = 0 }, pace = { .stretch = 1.75 };
    (void)state;
    assert_int_equal(prefill_budget_rows(&none, 3, 100), 100);
    assert_int_equal(prefill_budget_rows(&pace, 0, 100), 100);
    assert_int_equal(prefill_budget_rows(&pace, 3, 0), 0);
}

// The encoder of pictures may add to a step what a prompt may, and after a while a step without it is
// measured.
static void the_encoder_has_the_time_of_a_prompt(void **state)
{
    struct prefill_budget none = { .stretch = 0 }, pace = { .stretch = 1.5 };

    (void)state;
    assert_true(isinf(prefill_budget_ns(&none, 3)) && isinf(prefill_budget_ns(&pace, 0)));
    assert_true(prefill_budget_ns(&pace, 1) == 0);
    prefill_budget_note(&pace, 1, 0, 40000000);
    assert_true(prefill_budget_ns(&pace, 1) == 20000000);
    for (int i = 0; i < 32; i++) {
        assert_true(prefill_budget_ns(&pace, 1) > 0);
        prefill_budget_note_encoding(&pace, 1);
    }
    assert_true(prefill_budget_ns(&pace, 1) == 0);
    prefill_budget_note(&pace, 1, 0, 40000000);
    assert_true(prefill_budget_ns(&pace, 1) == 20000000);
    pace.stretch = 1;
    assert_true(prefill_budget_ns(&pace, 1) == 1); // never 0, so that it ends
}

// Weights, and those that one token uses: of SmolLM-135M, Llama 3B, 8B and 70B, Qwen3-30B-A3B, Mixtral 8x7B.
static void a_step_has_more_rows_where_few_weights_multiply(void **state)
{
    (void)state;
    assert_int_equal(load_rows_of(135000000, 135000000), 2048);
    assert_int_equal(load_rows_of(3200000000, 3200000000), 1024);
    assert_int_equal(load_rows_of(8030000000, 8030000000), 512);
    assert_int_equal(load_rows_of(70600000000, 70600000000), 512);
    assert_int_equal(load_rows_of(30500000000, 3300000000), 2048);
    assert_int_equal(load_rows_of(46700000000, 12900000000), 1024);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_has_more_rows_where_few_weights_multiply),
        cmocka_unit_test(a_prompt_stretches_no_step_beyond_the_limit),
        cmocka_unit_test(the_encoder_has_the_time_of_a_prompt),
        cmocka_unit_test(steps_below_sixteen_milliseconds_are_filled),
        cmocka_unit_test(rows_that_cost_little_in_company_come_together),
        cmocka_unit_test(a_larger_size_is_tried_once),
        cmocka_unit_test(one_slow_step_does_not_last),
        cmocka_unit_test(without_answers_or_limit_a_prompt_gets_all_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
