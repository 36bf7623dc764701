// predictions.c - what `ingot plan` predicts beside what is measured: bench_predictions ROUNDS THREADS
// [--gpus] MODEL[@WAYS]...
//
// Each model in several ways: devices, splits, depths, answers at the same time; all of them, or those whose
// numbers stand behind its name, as in model.gguf@0,3. In each round every way is predicted, by probes made
// anew, and measured right after; the rounds are interleaved. Of a way's steps, as of a probe's plays, the
// first quartile counts: what else runs on the machine only adds time. Each CPU device computes with THREADS
// threads; 0 takes all. With --gpus the ways are those of NVIDIA GPUs and a CPU; a machine's only GPU stands
// for the second one, too. The output is a table of medians over the rounds in tokens/s, and the median
// error.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/str.h"
#include "device/cuda/cuda.h"
#include "engine/api.h"
#include "engine/flight/flight_run.h"
#include "engine/stage/plan.h"

enum {
    MOST_MODELS = 8,
    MOST_ROUNDS = 9,
    MOST_WAYS = 12,
    N_ALONE = 24,
    MOST_STEPS = 4096,
    CONTEXT = 1024,
    N_PROMPTS = 4
};

#define TWO_GPUS "cuda:0,cuda:1"

static const struct prediction_way {
    const char *device;
    uint32_t quarter; // the share of the layers on the first device, in quarters; 0: no split
    uint32_t depth, n_answers;
    uint32_t n_prompt; // rows of a step; fewer where these take long
    const char *experts;
} on_cpus[MOST_WAYS] = {
    { "cpu", 0, 16, 1, 256, NULL },          { "cpu", 0, 768, 1, 256, NULL },
    { "cpu", 0, 16, 4, 256, NULL },          { "cpu", 0, 256, 8, 256, NULL },
    { "cpu,cpu", 2, 16, 1, 256, NULL },      { "cpu,cpu", 1, 512, 4, 256, NULL },
    { "cpu,cpu:plain", 3, 16, 1, 32, NULL }, { "cpu:plain", 0, 16, 1, 32, NULL },
}, on_gpus[MOST_WAYS] = {
    { "cuda:0", 0, 16, 1, 256, NULL },     { "cuda:0", 0, 768, 1, 256, NULL },
    { "cuda:0", 0, 256, 8, 256, NULL },    { TWO_GPUS, 2, 16, 1, 256, NULL },
    { TWO_GPUS, 2, 256, 8, 256, NULL },    { "cpu", 0, 16, 1, 64, NULL },
    { "cuda:0,cpu", 1, 16, 1, 64, NULL }, { "cuda:0,cpu", 2, 16, 1, 64, NULL },
    { "cuda:0,cpu", 3, 16, 1, 64, NULL }, { "cpu,cuda:0", 1, 16, 1, 64, NULL },
    { "cuda:0", 0, 16, 1, 64, "cpu" },
};

static const struct prediction_way *ways = on_cpus;
static bool one_gpu;

static struct figures {
    double predicted[MOST_ROUNDS], measured[MOST_ROUNDS];
} pairs[MOST_MODELS][MOST_WAYS][2];

static void must(bool ok, const char *message)
{
    if (ok)
        return;
    fprintf(stderr, "bench_predictions: %s\n", message);
    exit(1);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Sorts them.
static double quantile(double *values, uint32_t n, double share)
{
    qsort(values, n, sizeof *values, by_size);
    return values[(uint32_t)(share * n)];
}

// The length of an answer, such that all answers share N_ALONE steps after every prompt is read.
static uint32_t n_tokens_of(const struct prediction_way *way)
{
    return N_ALONE + way->n_answers * (way->depth / way->n_prompt + 2);
}

// The plan for the engine as it was opened; the probes are measured anew.
static struct plan *predict(const struct engine_loaded *l, uint32_t depth)
{
    struct plan *p = calloc(1, sizeof *p);
    struct stage_shape shape = l->stages[0].shape;
    struct plan_request r = {
        .model = &l->model, .devices = &l->devices, .shape = &shape, .pinned = &l->placement, .depth = depth
    };
    struct err err = { 0 };

    shape.exact = l->options.exact; // the first device may be the plain loops
    shape.overlaps = false;
    must(p != NULL, "out of memory");
    must(plan_layers(&r, p, &err), err.message);
    return p;
}

static void predict_way(const struct engine_loaded *l, const struct prediction_way *way,
                        struct figures pair[2], uint32_t round)
{
    struct plan *at_depth = predict(l, way->depth + n_tokens_of(way) / 2), *at_start = predict(l, 0);
    uint64_t ns = way->n_answers > 1 ? at_depth->many_ns : at_depth->token_ns;

    must(at_start->n_rows[PROBE_PROMPT] == way->n_prompt, "the plan's prompt has other rows");
    pair[0].predicted[round] = way->n_answers * 1e9 / (double)ns;
    pair[1].predicted[round] = way->n_prompt * 1e9 / (double)at_start->prompt_ns;
    free(at_depth);
    free(at_start);
}

static struct ingot_request *ask(struct ingot_engine *engine, uint32_t number, uint32_t n_prompt,
                                 uint32_t n_tokens)
{
    struct ingot_request_options r = ingot_request_defaults();
    struct ingot_error error = { 0 };
    uint32_t *tokens = calloc(n_prompt, sizeof *tokens);

    must(tokens != NULL, "out of memory");
    for (uint32_t i = 0; i < n_prompt; i++)
        tokens[i] = 3 + (i * 7 + number * 31) % 200;
    r.tokens = tokens;
    r.n_tokens = n_prompt;
    r.max_tokens = n_tokens;
    r.sampling.temperature = 0;
    r.ignore_eos = true;
    struct ingot_request *q = ingot_submit(engine, &r, &error);
    must(q != NULL, error.message);
    free(tokens);
    return q;
}

// Steps in which every request has a row and no prompt is read count; the first quartile of their times, as
// tokens/s of all sequences together.
static double measure_answers(struct ingot_engine *engine, const struct prediction_way *way)
{
    struct ingot_request *requests[8];
    struct ingot_engine_stats before, after;
    double ns[MOST_STEPS];
    uint32_t n_steps = 0, n = way->n_answers;
    bool busy = true;

    for (uint32_t i = 0; i < n; i++)
        requests[i] = ask(engine, i, way->depth, n_tokens_of(way));
    while (busy) {
        ingot_engine_stats(engine, &before);
        uint64_t begun = clock_ns();
        must(ingot_step(engine, &busy, NULL), "a step failed");
        double taken = (double)(clock_ns() - begun);
        ingot_engine_stats(engine, &after);
        if (after.n_rows - before.n_rows == n && n_steps < MOST_STEPS)
            ns[n_steps++] = taken;
    }
    must(n_steps >= N_ALONE / 2, "too few steps of answers alone");
    for (uint32_t i = 0; i < n; i++)
        ingot_request_free(requests[i]);
    return n * 1e9 / quantile(ns, n_steps, 0.25);
}

// Of one token each: no step behind it is on its way when the next prompt comes.
static double measure_prompt(struct ingot_engine *engine, const struct prediction_way *way)
{
    double seconds[N_PROMPTS];

    for (uint32_t i = 0; i < N_PROMPTS; i++) {
        struct ingot_request *q = ask(engine, 100 + i, way->n_prompt, 1);
        struct ingot_event event = { 0 };
        uint64_t begun = clock_ns();
        bool busy;
        must(ingot_step(engine, &busy, NULL), "a step failed");
        seconds[i] = (double)(clock_ns() - begun) * 1e-9;
        must(ingot_poll(q, &event), "the prompt took more than a step");
        ingot_request_free(q);
    }
    return way->n_prompt / quantile(seconds, N_PROMPTS, 0.25);
}

static uint32_t n_layers_of(const char *path)
{
    struct model_file *file;
    struct model model;
    struct err err;

    must(model_file_open(&file, path, &err) && model_bind(&model, file, &err), err.message);
    uint32_t n = model.config.n_layers;
    model_release(&model);
    model_file_close(file);
    return n;
}

static const char *device_of(const struct prediction_way *way)
{
    return one_gpu && strcmp(way->device, TWO_GPUS) == 0 ? "cuda:0,cuda:0" : way->device;
}

static void run(const struct ingot_engine_options *like, const struct prediction_way *way,
                struct figures pair[2], uint32_t round)
{
    struct ingot_engine_options o = *like;
    struct ingot_error error = { 0 };
    char border[16];

    o.device = device_of(way);
    o.experts = way->experts;
    o.n_context = CONTEXT;
    o.n_sequences = way->n_answers;
    o.n_batch = way->n_prompt;
    o.step_stretch = 0;
    o.speculate = INGOT_SPECULATE_OFF;
    o.no_prefix_cache = true;
    o.mmproj = "";
    snprintf(border, sizeof border, "%u", n_layers_of(o.model) * way->quarter / 4);
    o.stages = way->quarter ? border : NULL;
    struct ingot_engine *engine = ingot_engine_open(&o, &error);
    must(engine != NULL, error.message);
    flight_close(&engine->inner); // each step is timed alone
    predict_way(engine->inner.loaded, way, pair, round);
    pair[0].measured[round] = measure_answers(engine, way);
    pair[1].measured[round] = measure_prompt(engine, way);
    ingot_engine_close(engine);
    fprintf(stderr, "%s %s %u/4: answers %.1f, predicted %.1f; a prompt %.1f, predicted %.1f tok/s\n",
            o.model, o.device, way->quarter, pair[0].measured[round], pair[0].predicted[round],
            pair[1].measured[round], pair[1].predicted[round]);
}

static double print_pair(const struct prediction_way *way, const char *model, bool prompt, struct figures *p,
                         uint32_t n)
{
    double predicted = quantile(p->predicted, n, 0.5), measured = quantile(p->measured, n, 0.5),
           error = 100 * (predicted - measured) / measured;
    const char *slash = strrchr(model, '/');
    char split[24] = "";

    if (way->quarter)
        snprintf(split, sizeof split, "%u/4", way->quarter);
    if (way->experts)
        snprintf(split, sizeof split, "but experts");
    printf("| %s | %s | %s | %u | %u | %s | %.1f | %.1f | %+.1f %% |\n", slash ? slash + 1 : model,
           device_of(way), split, prompt ? 0 : way->depth, prompt ? 1 : way->n_answers,
           prompt ? "prompt" : "answers", predicted, measured, error);
    return fabs(error);
}

// Ways with the same devices and borders read prompts alike.
static bool has_prompt(uint32_t way)
{
    return ways[way].n_answers == 1 && ways[way].depth == 16;
}

// Of "MODEL@0,3" the ways 0 and 3, as bits, and the model's name alone; else all.
static uint32_t take_ways(char *model)
{
    char *at = strrchr(model, '@');
    uint32_t taken = 0;

    for (uint32_t w = 0; w < MOST_WAYS && !at; w++)
        taken |= ways[w].device ? 1u << w : 0;
    while (at && *at) {
        char *end;
        *at++ = 0;
        unsigned long w = strtoul(at, &end, 10);
        must(end > at && (*end == ',' || !*end) && w < MOST_WAYS && ways[w].device, "no such way");
        taken |= 1u << w;
        at = end;
    }
    return taken;
}

static void print_all(char **models, uint32_t n_models, const uint32_t *taken, uint32_t rounds)
{
    double errors[2 * MOST_MODELS * MOST_WAYS];
    uint32_t n = 0;

    printf("| model | devices | on the first | depth | answers | what | predicted tok/s | measured tok/s | "
           "error |\n|---|---|---|---|---|---|---|---|---|\n");
    for (uint32_t m = 0; m < n_models; m++)
        for (uint32_t w = 0; w < MOST_WAYS; w++)
            for (uint32_t k = 0; k < 2 && taken[m] >> w & 1; k++)
                if (k == 0 || has_prompt(w))
                    errors[n++] = print_pair(&ways[w], models[m], k, &pairs[m][w][k], rounds);
    double middle = quantile(errors, n, 0.5);
    printf("\n%u predictions: median error %.1f %%, largest %.1f %%\n", n, middle, errors[n - 1]);
}

int main(int argc, char **argv)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    uint64_t rounds = 0, n_threads = 0;
    uint32_t taken[MOST_MODELS] = { 0 };
    struct err err;

    if (argc > 3 && strcmp(argv[3], "--gpus") == 0) {
        ways = on_gpus;
        one_gpu = cuda_n_devices(&err) < 2;
        memmove(&argv[3], &argv[4], (size_t)(argc-- - 3) * sizeof *argv);
    }
    uint32_t n_models = (uint32_t)argc - 3;
    if (argc < 4 || argc - 3 > MOST_MODELS || !str_to_u64(str_from(argv[1]), &rounds) || rounds < 1 ||
        rounds > MOST_ROUNDS || !str_to_u64(str_from(argv[2]), &n_threads) || n_threads > 1024) {
        fprintf(stderr,
                "usage: bench_predictions ROUNDS THREADS [--gpus] MODEL[@WAYS]..., at most %d rounds and %d "
                "models\n",
                MOST_ROUNDS, MOST_MODELS);
        return 1;
    }
    o.n_threads = (uint32_t)n_threads;
    for (uint32_t m = 0; m < n_models; m++)
        taken[m] = take_ways(argv[3 + m]);
    for (uint32_t r = 0; r < rounds; r++)
        for (uint32_t m = 0; m < n_models; m++)
            for (uint32_t w = 0; w < MOST_WAYS; w++) {
                o.model = argv[3 + m];
                if (taken[m] >> w & 1)
                    run(&o, &ways[w], pairs[m][w], r);
            }
    print_all(&argv[3], n_models, taken, (uint32_t)rounds);
    return 0;
}
