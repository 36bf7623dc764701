// test_sample_emulated.c - the CUDA kernel of op_sample on the emulator: draws from vocabularies of every
// size and kind of row.
//
// Greedy rows are compared with the plain loop. A draw from a large vocabulary depends on how sums of
// probabilities are rounded, so that draws are compared with a definition in this file, which sorts all
// candidates and adds the kernel's integers: the ids must be the same, under any schedule.
#include <math.h>
#include <stdlib.h>
#include "device/cuda_sides.h"
#include "run/cuda_run.h"

enum row_kind { NORMAL, PEAKED, TIES, FLAT, WIDE, N_KINDS };

static uint64_t key_of(float logit, uint32_t id)
{
    uint32_t bits;

    memcpy(&bits, &logit, 4);
    bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (uint64_t)bits << 32 | ~id;
}

static float logit_of(uint64_t key)
{
    uint32_t bits = (uint32_t)(key >> 32);
    float logit;

    bits = bits & 0x80000000u ? bits & 0x7fffffffu : ~bits;
    memcpy(&logit, &bits, 4);
    return logit;
}

static int falling(const void *first, const void *second)
{
    uint64_t a = *(const uint64_t *)first, b = *(const uint64_t *)second;
    return a > b ? -1 : a < b;
}

static uint64_t weight_of(uint64_t key, float top)
{
    return (uint64_t)(expf(logit_of(key) - top) * 1099511627776.0f);
}

// How many of the first n candidates it takes to reach the limit.
static uint32_t reach(const uint64_t *keys, uint32_t n, float min_p, uint64_t limit)
{
    float top = logit_of(keys[0]);
    uint64_t sum = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (min_p == 0 || logit_of(keys[i]) == top || expf(logit_of(keys[i]) - top) >= min_p)
            sum += weight_of(keys[i], top);
        if (sum >= limit)
            return i + 1;
    }
    return n;
}

static uint64_t sum_of(const uint64_t *keys, uint32_t n, float min_p)
{
    float top = logit_of(keys[0]);
    uint64_t sum = 0;

    for (uint32_t i = 0; i < n; i++)
        if (min_p == 0 || logit_of(keys[i]) == top || expf(logit_of(keys[i]) - top) >= min_p)
            sum += weight_of(keys[i], top);
    return sum;
}

// Steps 3 to 5 of sample.h in the kernel's integers.
static uint32_t drawn(const float *logits, uint32_t n, const struct sample_params *p, uint32_t position)
{
    uint64_t *keys = mem_alloc(n * sizeof *keys);

    for (uint32_t i = 0; i < n; i++)
        keys[i] = key_of(logits[i] / p->temperature, i);
    qsort(keys, n, sizeof *keys, falling);
    uint32_t kept = p->top_k && p->top_k < n ? p->top_k : n;
    if (p->top_p < 1) {
        uint64_t limit = (uint64_t)((double)p->top_p * (double)sum_of(keys, kept, 0));
        kept = reach(keys, kept, 0, limit ? limit : 1);
    }
    float min_p = fmaxf(p->min_p, 1e-38f), random = sample_random(p->seed[0], p->seed[1], position);
    uint64_t limit = (uint64_t)((double)random * (double)sum_of(keys, kept, min_p)) + 1;
    uint32_t id = ~(uint32_t)keys[reach(keys, kept, min_p, limit) - 1];
    mem_free(keys);
    return id;
}

static void fill(float *logits, uint64_t n, enum row_kind kind)
{
    for (uint64_t i = 0; i < n; i++) {
        float v = bench_normal();
        logits[i] = kind == NORMAL   ? 2.5f * v
                    : kind == PEAKED ? (i % 5003 == 17 ? 20 + v : v)
                    : kind == TIES   ? 0.25f * rintf(8 * v)
                    : kind == FLAT   ? -1.5f
                                     : 30 * v;
        logits[i] = logits[i] == 0 && i % 2 ? -0.0f : logits[i];
    }
}

// The ids of the step's rows, and what the kernel did for them.
static struct cuda_run_counts check_draws(struct op_shape c, enum row_kind kind)
{
    struct side s = { 0 };
    struct err err = { 0 };
    uint32_t ids[SLOTS];
    const uint32_t positions[SLOTS] = { c.past, c.past / 2, 3, 0 };

    side_open(&s, gpu, &c, record_sample);
    uint64_t n = (uint64_t)c.rows * c.n_cols;
    float *logits = mem_alloc(n * sizeof *logits);
    fill(logits, n, kind);
    assert_ok(buffer_write(&s.buffers[0], 0, logits, n * sizeof *logits, &err), &err);
    cuda_run_counts = (struct cuda_run_counts){ 0 };
    assert_ok(tape_play(s.tape, &s.step, &err), &err);
    struct cuda_run_counts counts = cuda_run_counts;
    assert_ok(buffer_read(&s.buffers[2], RESULTS_AT * 4, ids, sizeof ids, &err), &err);
    for (uint32_t i = 0; i < c.rows && c.sampling.temperature > 0; i++) {
        struct sample_params p = c.sampling;
        p.seed[0] = i;
        assert_int_equal(ids[i], drawn(logits + (uint64_t)i * c.n_cols, c.n_cols, &p, positions[i]));
    }
    mem_free(logits);
    side_close(&s);
    return counts;
}

static const struct sample_params ways[] = {
    { .repeat_penalty = 1, .top_p = 1, .temperature = 1 },
    { .repeat_penalty = 1, .top_p = 0.95f, .temperature = 0.7f },
    { .repeat_penalty = 1, .top_p = 1, .top_k = 40, .temperature = 1.3f },
    { .repeat_penalty = 1, .top_p = 0.9f, .top_k = 60, .min_p = 0.05f, .temperature = 0.8f },
    { .repeat_penalty = 1, .top_p = 1, .min_p = 0.1f, .temperature = 1 },
    { .repeat_penalty = 1, .top_p = 1e-6f, .temperature = 1 },
    { .repeat_penalty = 1, .top_p = 0.5f, .top_k = 1, .temperature = 2 },
    { .repeat_penalty = 1, .top_p = 0.999f, .top_k = 3000, .temperature = 1.5f },
};
enum { N_WAYS = sizeof ways / sizeof *ways };

static void draws_of_every_kind_of_row(void **state)
{
    static const uint32_t sizes[] = { 1, 2, 31, 33, 257, 1023, 1025, 4099 };

    (void)state;
    skip_without_gpu();
    for (uint32_t k = 0; k < N_KINDS; k++)
        for (uint32_t w = 0; w < N_WAYS; w++) {
            uint32_t n = sizes[(k + w) % 8];
            cuda_run_settings.schedule = (int)((k + w) % 3);
            cuda_run_settings.seed = w;
            struct op_shape c = {
                .rows = SLOTS, .most_rows = SLOTS, .past = 10 + k, .n_cols = n, .sampling = ways[w]
            };
            check_draws(c, (enum row_kind)k);
        }
    cuda_run_settings.schedule = CUDA_RUN_FORWARD;
}

// Beyond what a greedy row takes, all logits are read twice, where top-k or the row leaves few candidates.
static void draws_from_a_large_vocabulary(void **state)
{
    enum { LARGE = 128256 };
    struct op_shape c = {
        .rows = 1, .most_rows = 1, .past = 7, .n_cols = LARGE, .sampling = { .repeat_penalty = 1, .top_p = 1 }
    };

    (void)state;
    skip_without_gpu();
    struct cuda_run_counts greedy = check_draws(c, NORMAL);
    for (uint32_t w = 0; w < N_WAYS; w++)
        for (uint32_t k = 0; k < N_KINDS; k++) {
            if (w >= 4 && k != w % N_KINDS) // rows take a second each
                continue;
            c.sampling = ways[w];
            struct cuda_run_counts n = check_draws(c, (enum row_kind)k);
            double reads = (double)(n.read_bytes - greedy.read_bytes) / (4.0 * LARGE);
            print_message(
                "way %u, kind %u: all logits %.1f times, %llu shared atomics, of which %llu collide\n", w, k,
                reads, (unsigned long long)n.shared_atomics, (unsigned long long)n.shared_collisions);
            if (k == PEAKED || (k == NORMAL && ways[w].top_k > 0))
                assert_true(reads < 2.1);
        }
}

static void altered_rows_of_ragged_vocabularies(void **state)
{
    static const uint32_t sizes[] = { 1, 31, 33, 1000, 1025, 2050 };
    static const struct sample_params altered[] = {
        { .repeat_penalty = 1.3f,
          .penalty_window = 64,
          .top_p = 1,
          .presence_penalty = 0.2f,
          .frequency_penalty = 0.1f },
        { .repeat_penalty = 1, .top_p = 1, .flags = SAMPLE_MASKED, .n_biases = 20 },
        { .repeat_penalty = 1.2f,
          .penalty_window = 64,
          .top_p = 0.9f,
          .top_k = 5,
          .temperature = 0.6f,
          .flags = SAMPLE_MASKED,
          .n_biases = 3 },
    };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (uint32_t w = 0; w < 3; w++) {
            struct op_shape c = {
                .rows = SLOTS, .most_rows = 5, .past = 100, .n_cols = sizes[i], .sampling = altered[w]
            };
            cuda_run_settings.schedule = (int)(i % 3);
            compare("sample", &c, record_sample);
        }
    cuda_run_settings.schedule = CUDA_RUN_FORWARD;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(altered_rows_of_ragged_vocabularies),
        cmocka_unit_test(draws_of_every_kind_of_row),
        cmocka_unit_test(draws_from_a_large_vocabulary),
    };
    return cuda_tests(tests, sizeof tests / sizeof *tests, argc, argv);
}
