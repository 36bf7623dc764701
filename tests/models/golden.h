// golden.h - reference logits, ours for the same tokens on any device, and how close they must be.
//
// The models are tiny and fully re-randomised, with odd sizes; tools/golden/ makes them.
#pragma once
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "device/cpu/cpu.h"
#include "format/model_file.h"
#include "open_engine.h"

struct golden {
    struct model_file *file;
    const uint32_t *tokens; // [n]
    const float *logits;    // [n, n_vocab]
    uint32_t n, n_vocab;
};

// Of g->file, which is open.
static inline void golden_take(struct golden *g)
{
    const struct file_tensor *tokens = model_file_tensor(g->file, "tokens"),
                             *logits = model_file_tensor(g->file, "logits");
    assert_non_null(tokens);
    assert_non_null(logits);
    assert_int_equal(tokens->dims[0], logits->dims[0]);
    *g = (struct golden){ g->file, (const uint32_t *)tokens->data, (const float *)logits->data,
                          (uint32_t)logits->dims[0], (uint32_t)logits->dims[1] };
}

static inline void golden_open(struct golden *g, const char *model)
{
    char path[512];
    struct err err = { 0 };

    snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s/golden.safetensors", model);
    assert_ok(model_file_open(&g->file, path, &err), &err);
    golden_take(g);
}

struct collected { // logits by position
    float *logits;
    uint32_t n_vocab, n, n_rows;
};

static inline bool collect(void *arg, const struct ingot_event *event)
{
    struct collected *c = arg;
    if (event->logits && event->position < c->n) {
        memcpy(c->logits + (size_t)event->position * c->n_vocab, event->logits, c->n_vocab * sizeof(float));
        c->n_rows++;
    }
    return true;
}

// Our logits at every position of the tokens. Free with free().
static inline float *run_logits(const struct ingot_engine_options *options, const struct golden *g)
{
    struct ingot_error error = { 0 };
    struct ingot_engine *engine = open_or_fail(options);
    struct collected c = { calloc((size_t)g->n * g->n_vocab, sizeof(float)), g->n_vocab, g->n, 0 };
    struct ingot_request_options r = ingot_request_defaults();
    r.tokens = g->tokens;
    r.n_tokens = g->n;
    r.n_logits = g->n;
    r.max_tokens = 1;
    r.sampling.temperature = 0;
    if (!ingot_generate(engine, &r, collect, &c, NULL, &error))
        fail_msg("%s", error.message);
    assert_int_equal(c.n_rows, g->n);
    ingot_engine_close(engine);
    return c.logits;
}

struct closeness {
    double worst_error;    // normalised squared error of a position
    double mean_kl;        // nats, from the reference to ours
    uint32_t top1_changes; // where the reference's margin exceeds 1e-3
};

static inline double log_sum_exp(const float *x, uint32_t n)
{
    double top = x[0], sum = 0;
    for (uint32_t i = 1; i < n; i++)
        top = x[i] > top ? x[i] : top;
    for (uint32_t i = 0; i < n; i++)
        sum += exp(x[i] - top);
    return top + log(sum);
}

static inline struct closeness compare_logits(const struct golden *g, const float *ours)
{
    struct closeness c = { 0 };

    for (uint32_t p = 0; p < g->n; p++) {
        const float *a = g->logits + (size_t)p * g->n_vocab, *b = ours + (size_t)p * g->n_vocab;
        double error = 0, norm = 0, kl = 0, za = log_sum_exp(a, g->n_vocab), zb = log_sum_exp(b, g->n_vocab);
        uint32_t best = 0, second = 1, best_ours = 0;
        for (uint32_t i = 0; i < g->n_vocab; i++) {
            error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
            norm += (double)a[i] * a[i];
            kl += exp(a[i] - za) * ((a[i] - za) - (b[i] - zb));
            best = a[i] > a[best] ? i : best;
            best_ours = b[i] > b[best_ours] ? i : best_ours;
        }
        second = best == 0 ? 1 : 0;
        for (uint32_t i = 0; i < g->n_vocab; i++)
            second = i != best && a[i] > a[second] ? i : second;
        c.worst_error = error / norm > c.worst_error || isnan(error) ? error / norm : c.worst_error;
        c.mean_kl += kl / g->n;
        c.top1_changes += best != best_ours && a[best] - a[second] > 1e-3f;
    }
    return c;
}

static const char *const golden_variants[] = {
    "llama2",  "tinyllama", "llama3",    "llama-linear", "llama-yarn", "smollm2", "mistral",    "devstral",
    "qwen2",   "qwen25",    "qwen3",     "gemma3",       "gemma3-27b", "smollm3", "olmo2",      "olmo3",
    "granite", "phi4",      "phi4-mini", "glm4",         "ministral3", "gemma4",  "gemma4-e2b", "gemma4-moe"
};
enum { N_GOLDEN_VARIANTS = sizeof golden_variants / sizeof *golden_variants };
// Models with experts, whose kernels the CPU has; from tools/golden/make_mixture_golden.py and
// make_latent_golden.py, which are no transformers.
static const char *const golden_mixtures[] = { "mixtral",     "qwen2moe",       "qwen3moe",     "olmoe",
                                               "granitemoe",  "gptoss",         "gptoss-mxfp4", "glm45",
                                               "glm45-air",   "deepseek2-lite", "deepseek2",    "deepseek3",
                                               "glm47-flash", "mistral4" };
// Weights of EXL3, in checkpoints alone, from tools/golden/make_exl3_golden.py: dense; with experts, which
// stay codes, and a shared one; with experts whose bits and codebooks are mixed.
static const char *const golden_trellis[] = { "exl3", "exl3-experts", "exl3-moe" };
enum { N_GOLDEN_TRELLIS = sizeof golden_trellis / sizeof *golden_trellis };
enum { N_GOLDEN_MIXTURES = sizeof golden_mixtures / sizeof *golden_mixtures };
// Models with recurrent layers, from tools/golden/make_hybrid_golden.py.
static const char *const golden_hybrids[] = { "lfm2",      "lfm2moe",       "qwen35",
                                              "qwen35moe", "granitehybrid", "granitehybrid-moe",
                                              "nemotronh", "nemotronh-moe" };
enum { N_GOLDEN_HYBRIDS = sizeof golden_hybrids / sizeof *golden_hybrids };
// Of those above, what has layers with a window.
static const char *const golden_windows[] = { "gemma3", "gemma4", "gemma4-e2b", "olmo3", "gptoss" };
enum { N_GOLDEN_WINDOWS = sizeof golden_windows / sizeof *golden_windows };

struct golden_run {
    const char *variant, *file, *device; // file: "/model.gguf", or "" for the folder of safetensors
    uint32_t n_batch;
    bool exact;
};

// Gates: `most` for the squared error, a mean KL of 1e-3, and, exact, the reference's first choices.
static inline void check_golden_at(const struct golden_run *run, const char *stages, const char *experts,
                                   double most)
{
    struct golden g;
    char path[512];
    struct ingot_engine_options options = ingot_engine_defaults();

    golden_open(&g, run->variant);
    snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s%s", run->variant, run->file);
    options.model = path;
    options.device = run->device;
    options.stages = stages;
    options.experts = experts;
    options.exact = run->exact;
    options.n_batch = run->n_batch;
    float *ours = run_logits(&options, &g);
    struct closeness c = compare_logits(&g, ours);
    print_message("%-13s %-12s %-9s %s%s %s%s %s batch %u: squared error %.1e, KL %.1e\n", run->variant,
                  *run->file ? run->file : "safetensors", run->device, stages ? "from layer " : "",
                  stages ? stages : "", experts ? "experts " : "", experts ? experts : "",
                  run->exact ? "exact" : "", run->n_batch, c.worst_error, c.mean_kl);
    if (!(c.worst_error <= most) || !(c.mean_kl <= 1e-3) || (run->exact && c.top1_changes != 0))
        fail_msg("%s%s on %s: squared error %g, KL %g, %u changed first choices; want at most %g, 1e-3%s",
                 run->variant, run->file, run->device, c.worst_error, c.mean_kl, c.top1_changes, most,
                 run->exact ? " and none" : "");
    free(ours);
    model_file_close(g.file);
}

static inline void check_golden_within(const struct golden_run *run, const char *stages, double most)
{
    check_golden_at(run, stages, NULL, most);
}

// Of the squared error: exact, 1e-9; else half precision, 1e-4. Processors that multiply bf16 take K, V and
// activations as bf16, whose rounding is 2^3 times as coarse as f16's: (2^3)^2 times as much.
static inline double golden_gate(const char *device, bool exact)
{
    bool bf16 = strcmp(device, "cpu") == 0 && cpu_features() & CPU_AVX512_BF16;

    return exact ? 1e-9 : bf16 ? 64e-4 : 1e-4;
}

// Exact: matrices that stay codes are as exact as others; mixed experts are rounded to halves.
static inline double golden_trellis_gate(const char *variant)
{
    return strcmp(variant, "exl3-moe") == 0 ? 1e-6 : 1e-9;
}

static inline void check_golden_placed(const struct golden_run *run, const char *stages, const char *experts)
{
    check_golden_at(run, stages, experts, golden_gate(run->device, run->exact));
}

static inline void check_golden_split(const struct golden_run *run, const char *stages)
{
    check_golden_placed(run, stages, NULL);
}

static inline void check_golden(const struct golden_run *run)
{
    check_golden_split(run, NULL);
}

// With --invariant: chunks of 1, 7 and 64 tokens give the bits of all at once. model: NULL: the golden's
// GGUF.
static inline void check_invariant(const char *golden, const char *model, const char *device, bool exact)
{
    static const uint32_t chunks[] = { 512, 1, 7, 64 };
    float *first = NULL;
    struct golden g;
    char path[512];

    golden_open(&g, golden);
    snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s/model.gguf", golden);
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        struct ingot_engine_options o = ingot_engine_defaults();
        o.model = model ? model : path;
        o.device = device;
        o.invariant = true;
        o.exact = exact;
        o.n_batch = chunks[i];
        float *logits = run_logits(&o, &g);
        if (first && memcmp(first, logits, (size_t)g.n * g.n_vocab * sizeof *logits) != 0)
            fail_msg("%s on %s: other bits in chunks of %u", golden, device, chunks[i]);
        if (first)
            free(logits);
        else
            first = logits;
    }
    free(first);
    model_file_close(g.file);
}

// The row of logits behind 150 tokens. kept: the engine has read them before, and goes on from what it kept.
// Free with free().
static inline float *logits_behind(struct ingot_engine *engine, uint32_t n_vocab, bool kept)
{
    uint32_t tokens[150];
    struct collected c = { calloc((size_t)150 * n_vocab, sizeof(float)), n_vocab, 150, 0 };
    struct ingot_request_options r = ingot_request_defaults();
    struct ingot_error error = { 0 };

    for (uint32_t i = 0; i < 150; i++)
        tokens[i] = (i * 37 + 5) % n_vocab;
    assert_int_equal(ingot_prompt_kept(engine, tokens, 150, NULL) > 0, kept);
    r.tokens = tokens;
    r.n_tokens = 150;
    r.n_logits = 1;
    r.max_tokens = 1;
    r.sampling.temperature = 0;
    if (!ingot_generate(engine, &r, collect, &c, NULL, &error))
        fail_msg("%s", error.message);
    return c.logits;
}

// With --invariant: going on from a kept state, or from kept pages, gives the bits of all tokens at once.
static inline void check_kept(const char *golden, const char *device)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct golden g;
    char path[512];

    golden_open(&g, golden);
    snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s/model.gguf", golden);
    o.model = path;
    o.device = device;
    o.invariant = true;
    o.n_context = 256;
    struct ingot_engine *engine = open_or_fail(&o);
    float *fresh = logits_behind(engine, g.n_vocab, false), *kept = logits_behind(engine, g.n_vocab, true);
    if (memcmp(fresh, kept, (size_t)150 * g.n_vocab * sizeof *fresh) != 0)
        fail_msg("%s on %s: other bits behind what was kept", golden, device);
    free(fresh);
    free(kept);
    ingot_engine_close(engine);
    model_file_close(g.file);
}
