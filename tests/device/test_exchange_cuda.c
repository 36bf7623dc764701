// test_exchange_cuda.c - GPUs that exchange inside their tapes: the sums in the order of the ranks, to the
// bit, of every width and number of rows, on all of them; logits put together; tokens told; steps in flight;
// a rank that does not come.
//
// On as many GPUs as there are, 2 and 3 of them, or on emulated ones (test_exchange_emulated).
#include "device/exchange_rig.h"
#include "testing.h"
#ifdef EMULATED_GPUS
#include "run/cuda_driver.h"
#endif

static uint32_t n_gpus;
static uint32_t random_state = 1;

static uint32_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state;
}

// Zeros of both signs among them, and numbers whose sum depends on the order.
static float random_number(void)
{
    uint32_t kind = random_next() % 16;

    if (kind < 2)
        return kind == 0 ? 0.0f : -0.0f;
    return ((float)(random_next() % 20001) - 10000) * (kind < 8 ? 1e-4f : 37.0f);
}

static struct exchange_shape shape_of(uint32_t n_cols, uint32_t most_rows, uint32_t max_outputs)
{
    return (struct exchange_shape){
        .n_cols = n_cols, .most_rows = most_rows, .max_outputs = max_outputs, .part_cols = { 171, 96, 64, 33 }
    };
}

static void open_rig(struct exchange_rig *r, uint32_t n, struct exchange_shape shape)
{
    struct err err = { 0 };

    assert_ok(rig_open(r, n, &shape, &err), &err);
    if (r->ranks.n == 0) {
        rig_close(r);
        print_message("skipped: the GPUs do not reach each other's memory\n");
        skip();
    }
}

// What all ranks put in, and what must come out.
struct numbers {
    float *in[RIG_MOST], *sum;
    uint64_t n;
};

static void numbers_make(struct numbers *x, uint32_t n_ranks, uint64_t n)
{
    x->n = n;
    x->sum = mem_alloc_array(n + 1, sizeof *x->sum);
    for (uint32_t r = 0; r < n_ranks; r++) {
        x->in[r] = mem_alloc_array(n + 1, sizeof *x->in[r]);
        for (uint64_t i = 0; i < n; i++)
            x->in[r][i] = random_number();
    }
}

// n_sums in turn: all ranks then hold the sum, which is added up again. Plus zero stands for both zeros.
static void add_up(struct numbers *x, uint32_t n_ranks, uint32_t n_sums)
{
    for (uint64_t i = 0; i < x->n; i++) {
        float sum = x->in[0][i];
        for (uint32_t r = 1; r < n_ranks; r++)
            sum += x->in[r][i];
        for (uint32_t k = 1; k < n_sums; k++) {
            float one = sum;
            for (uint32_t r = 1; r < n_ranks; r++)
                sum += one;
        }
        x->sum[i] = sum == 0 ? 0 : sum;
    }
}

static void numbers_free(struct numbers *x, uint32_t n_ranks)
{
    for (uint32_t r = 0; r < n_ranks; r++)
        mem_free(x->in[r]);
    mem_free(x->sum);
}

static void write_numbers(struct exchange_rig *r, struct rig_tape *t, const struct numbers *x)
{
    struct err err = { 0 };

    for (uint32_t i = 0; i < r->n; i++)
        assert_ok(buffer_write(&t->v[i], 0, x->in[i], x->n * 4, &err), &err);
}

static void check_numbers(struct exchange_rig *r, struct rig_tape *t, const struct numbers *x)
{
    float *got = mem_alloc_array(x->n + 1, sizeof *got);
    struct err err = { 0 };

    for (uint32_t i = 0; i < r->n; i++) {
        assert_ok(buffer_read(&t->v[i], 0, got, x->n * 4, &err), &err);
        if (memcmp(got, x->sum, x->n * 4) != 0)
            for (uint64_t k = 0; k < x->n; k++)
                if (memcmp(&got[k], &x->sum[k], 4) != 0)
                    fail_msg("%u ranks, %llu numbers, rank %u, number %llu: %a, want %a", r->n,
                             (unsigned long long)x->n, i, (unsigned long long)k, (double)got[k],
                             (double)x->sum[k]);
    }
    mem_free(got);
}

static void check_sums(struct exchange_rig *r, struct rig_tape *t, uint32_t n_rows)
{
    struct err err = { 0 };
    struct numbers x = { 0 };

    t->step->n_rows = n_rows;
    numbers_make(&x, r->n, (uint64_t)n_rows * r->shape.n_cols);
    add_up(&x, r->n, t->n_sums);
    write_numbers(r, t, &x);
    assert_ok(rig_play(r, t, r->n, &err), &err);
    assert_ok(rig_wait(r, &err), &err);
    check_numbers(r, t, &x);
    numbers_free(&x, r->n);
}

#ifdef EMULATED_GPUS
enum { MANY_ROWS = 60, N_STEPS = 30 };
#else
enum { MANY_ROWS = 600, N_STEPS = 1000 };
#endif

static void sums_of(uint32_t n_ranks)
{
    static const uint32_t widths[] = { 256, 322, 1001 }, sizes[] = { 1, 8, 17, MANY_ROWS };

    for (uint32_t w = 0; w < 3; w++) {
        struct exchange_rig r;
        open_rig(&r, n_ranks, shape_of(widths[w], MANY_ROWS, 1));
        for (uint32_t s = 0; s < 4; s++) { // an odd number: the next tape begins with the other room
            struct rig_tape t = { .limits = { .max_rows = sizes[s], .max_outputs = 1 }, .n_sums = 1 + s };
            struct err err = { 0 };
            assert_ok(rig_tape_make(&r, &t, &err), &err);
            assert_int_equal(tape_n_segments(t.tapes[0]), 1);
            assert_int_equal(tape_n_exchanges(t.tapes[0]), t.n_sums);
            for (uint32_t k = 0; k < 3; k++)
                check_sums(&r, &t, k == 0 ? sizes[s] : 1 + random_next() % sizes[s]);
            rig_tape_free(&r, &t);
        }
        rig_close(&r);
    }
}

static void sums_are_those_of_the_host_to_the_bit(void **state)
{
    (void)state;
    if (n_gpus < 2)
        skip();
    for (uint32_t n = 2; n <= 3 && n <= n_gpus; n++)
        sums_of(n);
}

// ---- a head

static void lay_out(struct rig_tape *t, uint32_t n_rows, uint32_t n_outputs)
{
    uint32_t *words = (uint32_t *)t->step, most = t->limits.max_rows;

    t->step->n_rows = n_rows;
    t->step->n_outputs = n_outputs;
    for (uint32_t i = 0; i < n_rows; i++) { // rows 2 and 3 are of one sequence
        words[step_at_slots(most) + i] = i == 3 ? 2 : i;
        words[step_at_positions(most) + i] = i == 3 ? 6 : 5 + (i == 4 ? RIG_STRIDE - 6 : 0);
    }
    for (uint32_t i = 0; i < n_outputs; i++)
        words[step_at_outputs(most) + i] = i;
    struct sample_params *samples =
        (struct sample_params *)(void *)(words + step_at_samples(most, t->limits.max_outputs));
    memset(samples, 0, t->limits.max_outputs * sizeof *samples);
    if (n_outputs > 1)
        samples[1].flags = SAMPLE_SKIP;
}

static void check_whole(struct exchange_rig *r, struct rig_tape *t, float *const *parts, uint32_t n_outputs)
{
    uint32_t all = 0;
    struct err err = { 0 };

    for (uint32_t i = 0; i < r->n; i++)
        all += r->shape.part_cols[i];
    float *whole = mem_alloc_array((size_t)n_outputs * all + 1, sizeof *whole);
    assert_ok(buffer_read(&t->whole, 0, whole, (uint64_t)n_outputs * all * 4, &err), &err);
    for (uint32_t o = 0; o < n_outputs; o++)
        for (uint32_t i = 0, before = 0; i < r->n; before += r->shape.part_cols[i++])
            for (uint32_t c = 0; c < r->shape.part_cols[i]; c++) // zeros are equal
                if (whole[o * all + before + c] != parts[i][o * r->shape.part_cols[i] + c])
                    fail_msg("output %u, rank %u, column %u", o, i, c);
    mem_free(whole);
}

// Output 1 draws nothing, row 2 is followed by the next of its sequence, and slot 4 is full.
static void check_told(struct exchange_rig *r, struct rig_tape *t, const uint32_t *results,
                       uint32_t n_outputs)
{
    struct err err = { 0 };

    for (uint32_t i = 1; i < r->n; i++) {
        uint32_t history[8 * RIG_STRIDE];
        assert_ok(buffer_read(&t->histories[i], 0, history, sizeof history, &err), &err);
        for (uint32_t o = 0; o < n_outputs; o++) {
            uint32_t slot = o == 3 ? 2 : o, at = o == 3 ? 7 : 6;
            bool told = o != 1 && o != 2 && o != 4;
            assert_int_equal(history[slot * RIG_STRIDE + at], told ? results[o] : 0);
        }
    }
}

static void check_head(struct exchange_rig *r, struct rig_tape *t, uint32_t n_outputs, uint32_t round)
{
    float *parts[RIG_MOST];
    uint32_t results[8], zeros[8 * RIG_STRIDE] = { 0 };
    struct err err = { 0 };

    lay_out(t, 8, n_outputs);
    for (uint32_t i = 0; i < 8; i++)
        results[i] = 100 * round + i + 1;
    assert_ok(buffer_write(&t->results, 0, results, sizeof results, &err), &err);
    for (uint32_t i = 0; i < r->n; i++) {
        uint64_t n = 8ull * r->shape.part_cols[i];
        parts[i] = mem_alloc_array(n, sizeof(float));
        for (uint64_t k = 0; k < n; k++)
            parts[i][k] = random_number();
        assert_ok(buffer_write(&t->parts[i], 0, parts[i], n * 4, &err), &err);
        assert_ok(buffer_write(&t->histories[i], 0, zeros, sizeof zeros, &err), &err);
    }
    assert_ok(rig_play(r, t, r->n, &err), &err);
    assert_ok(rig_wait(r, &err), &err);
    check_whole(r, t, parts, n_outputs);
    check_told(r, t, results, n_outputs);
    for (uint32_t i = 0; i < r->n; i++)
        mem_free(parts[i]);
}

static void logits_are_put_together_and_tokens_told(void **state)
{
    (void)state;
    if (n_gpus < 2)
        skip();
    for (uint32_t n = 2; n <= 3 && n <= n_gpus; n++) {
        struct exchange_rig r;
        struct rig_tape t = { .limits = { .max_rows = 8, .max_outputs = 8 }, .n_sums = 1, .has_head = true };
        struct err err = { 0 };
        open_rig(&r, n, shape_of(256, 8, 8));
        assert_ok(rig_tape_make(&r, &t, &err), &err);
        for (uint32_t k = 0; k < 6; k++)
            check_head(&r, &t, k < 5 ? k + 1 : 8, k);
        rig_tape_free(&r, &t);
        rig_close(&r);
    }
}

// ---- many steps

// Submitted one behind the other on all ranks before anyone waits: tapes of an odd and an even number of
// sums, of few rows and many, in any order.
static void steps_in_flight(uint32_t n_ranks)
{
    struct exchange_rig r;
    struct rig_tape t[3] = { { .limits = { .max_rows = 1, .max_outputs = 1 }, .n_sums = 3, .has_head = true },
                             { .limits = { .max_rows = 5, .max_outputs = 1 }, .n_sums = 2 },
                             { .limits = { .max_rows = MANY_ROWS, .max_outputs = 1 }, .n_sums = 1 } };
    struct numbers x[3] = { { .n = 0 } };
    uint32_t n_plays[3] = { 0 };
    struct err err = { 0 };

    open_rig(&r, n_ranks, shape_of(322, MANY_ROWS, 1));
    for (uint32_t k = 0; k < 3; k++) {
        assert_ok(rig_tape_make(&r, &t[k], &err), &err);
        t[k].step->n_rows = t[k].limits.max_rows;
        t[k].step->n_outputs = k == 0;
        numbers_make(&x[k], n_ranks, (uint64_t)t[k].limits.max_rows * r.shape.n_cols);
        for (uint32_t i = 0; i < n_ranks; i++) // all small: sums of many rounds stay finite
            for (uint64_t m = 0; m < x[k].n; m++)
                x[k].in[i][m] = (float)(int)(random_next() % 3) - 1;
        write_numbers(&r, &t[k], &x[k]);
    }
    for (uint32_t i = 0; i < N_STEPS; i++) {
        uint32_t k = random_next() % 3;
        assert_ok(rig_play(&r, &t[k], n_ranks, &err), &err);
        n_plays[k]++;
    }
    assert_ok(rig_wait(&r, &err), &err);
    for (uint32_t k = 0; k < 3; k++) {
        if (n_plays[k])
            add_up(&x[k], n_ranks, n_plays[k] * t[k].n_sums);
        if (n_plays[k])
            check_numbers(&r, &t[k], &x[k]);
        numbers_free(&x[k], n_ranks);
        rig_tape_free(&r, &t[k]);
    }
    rig_close(&r);
}

static void many_steps_follow_each_other(void **state)
{
    (void)state;
    if (n_gpus < 2)
        skip();
    for (uint32_t n = 2; n <= 3 && n <= n_gpus; n++)
        steps_in_flight(n);
}

// ---- a rank that does not come

static void a_rank_that_does_not_come_is_named(void **state)
{
    struct exchange_rig r;
    struct rig_tape t = { .limits = { .max_rows = 4, .max_outputs = 1 }, .n_sums = 40 };
    struct err err = { 0 };
    (void)state;

    if (n_gpus < 2)
        skip();
    open_rig(&r, 2, shape_of(256, 4, 1));
    assert_ok(rig_tape_make(&r, &t, &err), &err);
    check_sums(&r, &t, 3);
    assert_ok(rig_play(&r, &t, 1, &err), &err); // rank 0 alone: 40 sums, one wait
    assert_fails(rig_wait(&r, &err), &err, "rank 1 of 2 (cuda:1) did not answer rank 0 (cuda:0) within 2 s");
    rig_tape_free(&r, &t);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_the_host_to_the_bit),
        cmocka_unit_test(logits_are_put_together_and_tokens_told),
        cmocka_unit_test(many_steps_follow_each_other),
        cmocka_unit_test(a_rank_that_does_not_come_is_named),
    };
    struct err err = { 0 };

#ifdef EMULATED_GPUS
    cuda_driver_devices = EMULATED_GPUS;
#endif
    n_gpus = cuda_n_devices(&err);
    if (n_gpus < 2)
        print_message("skipped: %s\n", n_gpus ? "one GPU" : err.message);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
