// together.c - tokens per second of several sequences that decode together, greedily: bench_together MODEL
// DEVICE[@STAGES] TOKENS ROUNDS N...
//
// With several devices, as in cuda:0,cuda:1@16, STAGES are the layers at which the next one takes over.
// Submits N requests of a few tokens at once. Timing begins with the step after which all have their first
// token. Interleaves the rounds of all N; prints for each N the median tokens/s, us a step, and tokens/s
// relative to the first N.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ingot.h>
#include "base/clock.h"
#include "base/str.h"

enum { MOST_COUNTS = 16, MOST_ROUNDS = 64, MOST_SEQUENCES = 256, MOST_TOKENS = 1 << 20, PROMPT = 4 };

static void must(bool ok, const struct ingot_error *error)
{
    if (ok)
        return;
    fprintf(stderr, "bench_together: %s\n", error->message);
    exit(1);
}

// Tokens of the request that came since the last call.
static uint32_t take_tokens(struct ingot_request *request)
{
    struct ingot_event event;
    uint32_t n = 0;

    while (ingot_poll(request, &event)) {
        n += event.token != UINT32_MAX;
        if (event.done && event.result->finish != INGOT_FINISH_LENGTH)
            must(false, &event.result->error);
    }
    return n;
}

static uint32_t take_all(struct ingot_request *const *requests, uint32_t n, uint32_t *counts)
{
    uint32_t all = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t came = take_tokens(requests[i]);
        counts[i] += came;
        all += came;
    }
    return all;
}

static bool all_began(const uint32_t *counts, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (counts[i] == 0)
            return false;
    return true;
}

static double tokens_per_second(struct ingot_engine *engine, uint32_t n, uint32_t n_tokens)
{
    struct ingot_request *requests[MOST_SEQUENCES];
    uint32_t counts[MOST_SEQUENCES] = { 0 }, timed = 0;
    struct ingot_error error;
    bool busy = true;
    uint64_t start = 0;

    for (uint32_t i = 0; i < n; i++) {
        struct ingot_request_options options = ingot_request_defaults();
        const uint32_t prompt[PROMPT] = { 1, 5 + i, 7, 11 };
        options.tokens = prompt;
        options.n_tokens = PROMPT;
        options.sampling.temperature = 0;
        options.max_tokens = n_tokens;
        options.ignore_eos = true;
        requests[i] = ingot_submit(engine, &options, &error);
        must(requests[i] != NULL, &error);
    }
    while (busy) {
        must(ingot_step(engine, &busy, &error), &error);
        uint32_t came = take_all(requests, n, counts);
        timed += start > 0 ? came : 0;
        if (start == 0 && all_began(counts, n))
            start = clock_ns();
    }
    double taken = (double)(clock_ns() - start) * 1e-9;
    for (uint32_t i = 0; i < n; i++)
        ingot_request_free(requests[i]);
    return timed / taken;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// A number of at least `least` and at most `most`.
static uint32_t number(const char *text, uint32_t least, uint32_t most)
{
    uint64_t v;

    if (str_to_u64(str_from(text), &v) && v >= least && v <= most)
        return (uint32_t)v;
    fprintf(stderr, "bench_together: '%s': want a number from %u to %u\n", text, least, most);
    exit(1);
}

int main(int argc, char **argv)
{
    static double speeds[MOST_COUNTS][MOST_ROUNDS];
    struct ingot_engine_options options = ingot_engine_defaults();
    struct ingot_error error;
    int n_counts = argc - 5;
    uint32_t counts[MOST_COUNTS];

    if (n_counts < 1 || n_counts > MOST_COUNTS) {
        fprintf(stderr, "usage: bench_together MODEL DEVICE[@STAGES] TOKENS ROUNDS N...\n");
        return 1;
    }
    uint32_t n_tokens = number(argv[3], 2, MOST_TOKENS), rounds = number(argv[4], 1, MOST_ROUNDS);
    for (int i = 0; i < n_counts; i++) {
        counts[i] = number(argv[5 + i], 1, MOST_SEQUENCES);
        options.n_sequences = counts[i] > options.n_sequences ? counts[i] : options.n_sequences;
    }
    options.model = argv[1];
    options.device = argv[2];
    char *at = strchr(argv[2], '@');
    if (at) {
        *at = 0;
        options.stages = at + 1;
    }
    options.n_context = n_tokens + 64;
    options.speculate = INGOT_SPECULATE_OFF; // steps are what is timed
    struct ingot_engine *engine = ingot_engine_open(&options, &error);
    must(engine != NULL, &error);
    for (uint32_t r = 0; r <= rounds; r++) // the first warms up: the second takes its place
        for (int i = 0; i < n_counts; i++)
            speeds[i][r ? r - 1 : 0] = tokens_per_second(engine, counts[i], n_tokens);
    for (int i = 0; i < n_counts; i++) {
        qsort(speeds[i], rounds, sizeof(double), by_size);
        double median = speeds[i][rounds / 2], first = speeds[0][rounds / 2];
        printf("{\"sequences\": %u, \"tokens_s\": %.1f, \"least\": %.1f, \"most\": %.1f, \"us_step\": %.1f, "
               "\"of_first\": %.2f}\n",
               counts[i], median, speeds[i][0], speeds[i][rounds - 1], 1e6 * counts[i] / median,
               median / first);
    }
    ingot_engine_close(engine);
    return 0;
}
