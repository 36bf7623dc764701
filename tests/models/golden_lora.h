// golden_lora.h - golden.h for LoRA adapters: the models and adapters of tools/golden/make_lora_golden.py.
#pragma once
#include "models/golden.h"

struct golden_lora {
    const char *model, *adapter; // folders of tests/golden and of tests/golden/lora
};
static const struct golden_lora golden_loras[] = {
    { "tinyllama", "tinyllama-all" },   { "tinyllama", "tinyllama-root" }, { "granite", "granite" },
    { "phi4-mini", "phi4-mini-fused" }, { "glm4", "glm4-head" },
};
enum { N_GOLDEN_LORAS = sizeof golden_loras / sizeof *golden_loras };

// Our logits of all tokens, by a request with this adapter. Free with free().
static inline float *run_adapted(struct ingot_engine *engine, const struct golden *g,
                                 const struct ingot_adapter_use *uses, size_t n_uses)
{
    struct collected c = { calloc((size_t)g->n * g->n_vocab, sizeof(float)), g->n_vocab, g->n, 0 };
    struct ingot_request_options r = ingot_request_defaults();
    struct ingot_error error = { 0 };

    r.tokens = g->tokens;
    r.n_tokens = r.n_logits = g->n;
    r.max_tokens = 1;
    r.sampling.temperature = 0;
    r.adapters = uses;
    r.n_adapters = n_uses;
    if (!ingot_generate(engine, &r, collect, &c, NULL, &error))
        fail_msg("%s", error.message);
    assert_int_equal(c.n_rows, g->n);
    return c.logits;
}

// files: bit 0, the model's safetensors in place of its GGUF; bit 1, PEFT's folder in place of the adapter's.
// n_ranks: those that have a part of every layer each; 0: none.
static inline void check_golden_lora_over(uint32_t n_ranks, const struct golden_lora *l, uint32_t files,
                                          const struct golden_run *run)
{
    char model[512], path[512], named[128];
    struct ingot_adapter adapter = { path, "it", 2 };
    struct ingot_adapter_use use = { "it", 0.5f };
    struct ingot_engine_options options = ingot_engine_defaults();
    struct golden g;
    struct err err = { 0 };

    snprintf(named, sizeof named, "lora/%s", l->adapter);
    snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s/golden.safetensors", named);
    assert_ok(model_file_open_adapter(&g.file, path, &err), &err);
    golden_take(&g);
    snprintf(model, sizeof model, SOURCE_DIR "/tests/golden/%s%s", l->model, files & 1 ? "" : "/model.gguf");
    snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s%s", named, files & 2 ? "" : "/adapter.gguf");
    options.model = model;
    options.device = run->device;
    options.n_batch = run->n_batch;
    options.exact = run->exact;
    options.n_tensor_parallel = n_ranks;
    options.adapters = &adapter;
    options.n_adapters = 1;
    struct ingot_engine *engine = open_or_fail(&options);
    float *ours = run_adapted(engine, &g, &use, 1);
    struct closeness c = compare_logits(&g, ours);
    double most = golden_gate(run->device, run->exact);
    print_message("%-16s %s, %s, %-9s %s batch %u, ranks %u: squared error %.1e, KL %.1e\n", l->adapter,
                  files & 1 ? "checkpoint" : "GGUF", files & 2 ? "PEFT" : "GGUF", run->device,
                  run->exact ? "exact" : "", run->n_batch, n_ranks, c.worst_error, c.mean_kl);
    if (!(c.worst_error <= most) || !(c.mean_kl <= 1e-3) || (run->exact && c.top1_changes != 0))
        fail_msg("%s on %s: squared error %g, KL %g, %u changed first choices; want at most %g, 1e-3",
                 l->adapter, run->device, c.worst_error, c.mean_kl, c.top1_changes, most);
    free(ours);
    ingot_engine_close(engine);
    model_file_close(g.file);
}

static inline void check_golden_lora(const struct golden_lora *l, uint32_t files,
                                     const struct golden_run *run)
{
    check_golden_lora_over(0, l, files, run);
}
