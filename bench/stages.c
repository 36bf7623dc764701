// stages.c - how busy the stages of a pipeline are: bench_stages MODEL DEVICES STAGES THREADS ROUNDS
//
// Prompts: m chunks over s stages take at least (m + s - 1) / m times the slowest stage's work, since the
// last stage waits for the first chunk and the first stage for the last. The table has the measured time over
// that bound, the busy share of each stage, and for comparison the time of one step at a time and of one
// stage with all threads. Answers: tokens/s of several sequences together, with stages in parallel, with one
// step at a time, and on one stage with the threads of one stage and of all.
//
// Rounds are interleaved; figures are medians over them. A stage's work is what it took in the same run, so
// that what else runs on the machine counts on both sides. The layers of a plan that divides the work
// unevenly stay so: the bound is by the slowest stage. Stages on GPUs that send to each other have no threads
// of their own and are not timed one by one. The run with a single stage uses the last device.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/str.h"
#include "base/thread_pool.h"
#include "engine/api.h"
#include "engine/flight/flight_run.h"
#include "engine/flight/pipeline.h"

enum { CHUNK = 128, MOST_CHUNKS = 16, N_PROMPTS = 4, N_ANSWERS = 4, MOST_ANSWERS = 32, N_NEW = 24 };
enum { MOST_ROUNDS = 15, CONTEXT = CHUNK * MOST_CHUNKS + 64 };

static const uint32_t prompts[N_PROMPTS] = { 2, 4, 8, 16 }, answers[N_ANSWERS] = { 1, 8, 16, 32 };

struct prompt_run {
    double wall, alone, whole, share[MAX_DEVICES], slowest; // seconds; shares of wall
};

enum bench_way { OVERLAPPED, ONE_STEP, ONE_THREAD, ALL_THREADS, N_WAYS };

static void must(bool ok, const char *message)
{
    if (ok)
        return;
    fprintf(stderr, "bench_stages: %s\n", message);
    exit(1);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, uint32_t n)
{
    qsort(values, n, sizeof *values, by_size);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static struct ingot_request *ask(struct ingot_engine *engine, uint32_t number, uint32_t n_prompt,
                                 uint32_t n_new)
{
    static uint32_t tokens[CHUNK * MOST_CHUNKS];
    struct ingot_request_options r = ingot_request_defaults();
    struct ingot_error error = { 0 };

    for (uint32_t i = 0; i < n_prompt; i++)
        tokens[i] = 3 + (i * 7 + number * 31) % 200;
    r.tokens = tokens;
    r.n_tokens = n_prompt;
    r.max_tokens = n_new;
    r.sampling.temperature = 0;
    r.ignore_eos = true;
    struct ingot_request *q = ingot_submit(engine, &r, &error);
    must(q != NULL, error.message);
    return q;
}

// Seconds until all requests have ended.
static double step_all(struct ingot_engine *engine)
{
    uint64_t begun = clock_ns();
    bool busy = true;

    while (busy)
        must(ingot_step(engine, &busy, NULL), "a step failed");
    return (double)(clock_ns() - begun) * 1e-9;
}

static struct ingot_engine *open_on(const struct ingot_engine_options *like, const char *device,
                                    const char *stages, uint32_t n_threads)
{
    struct ingot_engine_options o = *like;
    struct ingot_error error = { 0 };

    o.device = device;
    o.stages = stages;
    o.n_threads = n_threads;
    struct ingot_engine *engine = ingot_engine_open(&o, &error);
    must(engine != NULL, error.message);
    return engine;
}

static double read_prompt(struct ingot_engine *engine, uint32_t n_chunks)
{
    struct ingot_request *q = ask(engine, n_chunks, n_chunks * CHUNK, 1);
    double seconds = step_all(engine);

    ingot_request_free(q);
    return seconds;
}

static void run_prompt(struct ingot_engine *const engines[N_WAYS], uint32_t n_chunks, struct prompt_run *to)
{
    struct engine *e = &engines[OVERLAPPED]->inner;
    uint32_t n = e->loaded->n_stages;
    double before[MAX_DEVICES];

    n = e->pipeline ? n : 0;
    for (uint32_t i = 0; i < n; i++)
        before[i] = (double)pipeline_busy_ns(e->pipeline, i) * 1e-9;
    to->wall = read_prompt(engines[OVERLAPPED], n_chunks);
    to->slowest = 0;
    for (uint32_t i = 0; i < n; i++) {
        double busy = (double)pipeline_busy_ns(e->pipeline, i) * 1e-9 - before[i];
        to->share[i] = busy / to->wall;
        to->slowest = busy > to->slowest ? busy : to->slowest;
    }
    to->alone = read_prompt(engines[ONE_STEP], n_chunks);
    to->whole = read_prompt(engines[ALL_THREADS], n_chunks);
}

// Tokens a second, of steps that read no prompt but for its few tokens.
static double run_answers(struct ingot_engine *engine, uint32_t n)
{
    struct ingot_request *requests[MOST_ANSWERS];

    for (uint32_t i = 0; i < n; i++)
        requests[i] = ask(engine, i, 4, N_NEW);
    double seconds = step_all(engine);
    for (uint32_t i = 0; i < n; i++)
        ingot_request_free(requests[i]);
    return n * N_NEW / seconds;
}

static void print_prompt(struct prompt_run *runs, uint32_t n_rounds, uint32_t m, uint32_t s)
{
    double values[5][MOST_ROUNDS], share[MOST_ROUNDS], bound = (double)(m + s - 1) / m;

    for (uint32_t i = 0; i < n_rounds; i++) {
        values[0][i] = runs[i].wall;
        values[1][i] = runs[i].slowest * bound;
        values[2][i] = runs[i].wall / (runs[i].slowest * bound);
        values[3][i] = runs[i].alone;
        values[4][i] = runs[i].whole;
    }
    if (runs->slowest > 0)
        printf("| %u | %.3f | %.3f | %.3f |", m, median(values[0], n_rounds), median(values[1], n_rounds),
               median(values[2], n_rounds));
    else
        printf("| %u | %.3f | - | - | - |", m, median(values[0], n_rounds));
    for (uint32_t k = 0; k < s && runs->slowest > 0; k++) {
        for (uint32_t i = 0; i < n_rounds; i++)
            share[i] = 100 * runs[i].share[k];
        printf(" %.0f %%%s", median(share, n_rounds), k + 1 < s ? "," : " |");
    }
    printf(" %.3f | %.3f |\n", median(values[3], n_rounds), median(values[4], n_rounds));
}

// Steps that follow each other only when they are over.
static void one_step_at_a_time(struct ingot_engine *engine)
{
    flight_close(&engine->inner);
}

static struct ingot_engine *overlapped(struct ingot_engine *engine)
{
    struct engine *e = &engine->inner;
    struct err err = { 0 };

    if (pipeline_n_sections(e->loaded->links, e->loaded->n_stages) == 1)
        return engine;
    flight_close(e);
    must(flight_start(e, e->loaded->n_stages, &err), err.message);
    return engine;
}

static void run_all(struct ingot_engine *const engines[N_WAYS], uint32_t n_rounds)
{
    static struct prompt_run runs[N_PROMPTS][MOST_ROUNDS];
    static double rates[N_ANSWERS][N_WAYS][MOST_ROUNDS];
    uint32_t s = engines[OVERLAPPED]->inner.loaded->n_stages;

    for (uint32_t round = 0; round < n_rounds; round++) {
        for (uint32_t i = 0; i < N_PROMPTS; i++)
            run_prompt(engines, prompts[i], &runs[i][round]);
        for (uint32_t i = 0; i < N_ANSWERS; i++)
            for (enum bench_way w = 0; w < N_WAYS; w++)
                rates[i][w][round] = run_answers(engines[w], answers[i]);
        fprintf(stderr, "round %u of %u\n", round + 1, n_rounds);
    }
    printf("| chunks of %d rows | s | bound, s | time / bound | stages compute | one step at a time, s | "
           "one stage, all threads, s |\n|---|---|---|---|---|---|---|\n",
           CHUNK);
    for (uint32_t i = 0; i < N_PROMPTS; i++)
        print_prompt(runs[i], n_rounds, prompts[i], s);
    printf("\n| answers, tokens/s together | at the same time | one step at a time | one stage, a stage's "
           "threads | one stage, all threads |\n|---|---|---|---|---|\n");
    for (uint32_t i = 0; i < N_ANSWERS; i++) {
        printf("| %u |", answers[i]);
        for (enum bench_way w = 0; w < N_WAYS; w++)
            printf(" %.1f |", median(rates[i][w], n_rounds));
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    uint64_t n_threads = 0, n_rounds = 0;

    if (argc != 6 || !str_to_u64(str_from(argv[4]), &n_threads) || n_threads < 1 || n_threads > 256 ||
        !str_to_u64(str_from(argv[5]), &n_rounds) || n_rounds < 1 || n_rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: bench_stages MODEL DEVICES STAGES THREADS ROUNDS, at most %d rounds\n",
                MOST_ROUNDS);
        return 1;
    }
    o.model = argv[1];
    o.n_context = CONTEXT;
    o.n_sequences = MOST_ANSWERS;
    o.n_batch = CHUNK;
    o.step_stretch = 0;
    o.speculate = INGOT_SPECULATE_OFF;
    o.no_prefix_cache = true;
    o.mmproj = "";
    uint32_t one = (uint32_t)n_threads;
    struct ingot_engine *engines[N_WAYS] = { [ONE_STEP] = open_on(&o, argv[2], argv[3], one) };
    uint32_t n_stages = engines[ONE_STEP]->inner.loaded->n_stages;
    must(n_stages > 1, "want several devices, as in cpu,cpu or cpu,cuda:0");
    one_step_at_a_time(engines[ONE_STEP]);
    engines[OVERLAPPED] = overlapped(open_on(&o, argv[2], argv[3], one));
    const char *comma = strrchr(argv[2], ','), *last = comma ? comma + 1 : argv[2];
    engines[ONE_THREAD] = open_on(&o, last, NULL, one);
    uint32_t all = one * n_stages < thread_count_available() ? one * n_stages : thread_count_available();
    engines[ALL_THREADS] = open_on(&o, last, NULL, all);
    run_all(engines, (uint32_t)n_rounds);
    for (enum bench_way w = 0; w < N_WAYS; w++)
        ingot_engine_close(engines[w]);
    return 0;
}
