// random_family.c - see random_family.h.
#include "model_tools/random/random_family.h"
#include <string.h>
#include "model_tools/random/random_keys.h"

static void granite_keys(const struct random_shape *h, struct gguf_writer *w)
{
    random_key_f32(w, h->arch, "embedding_scale", 12);
    random_key_f32(w, h->arch, "residual_scale", 0.22f);
    random_key_f32(w, h->arch, "attention.scale", 1.0f / (float)h->head_dim);
    random_key_f32(w, h->arch, "logit_scale", 6);
}

static void gemma3_keys(const struct random_shape *h, struct gguf_writer *w)
{
    bool small = h->n_cols < 2048;

    random_key_u32(w, h->arch, "attention.sliding_window", small ? 512 : 1024);
    if (!small)
        random_key_str(w, h->arch, "rope.scaling.type", STR("linear"));
    random_key_f32(w, h->arch, "rope.scaling.factor", small ? 1 : 8);
}

static void yarn_keys(const struct random_shape *h, struct gguf_writer *w, float factor, uint32_t original)
{
    random_key_str(w, h->arch, "rope.scaling.type", STR("yarn"));
    random_key_f32(w, h->arch, "rope.scaling.factor", factor);
    random_key_u32(w, h->arch, "rope.scaling.original_context_length", original);
}

static void mistral3_keys(const struct random_shape *h, struct gguf_writer *w)
{
    if (strncmp(h->name, "devstral-small-2", 16) == 0)
        yarn_keys(h, w, 48, 8192);
    else
        yarn_keys(h, w, 16, 16384);
    random_key_f32(w, h->arch, "rope.scaling.yarn_log_multiplier", 1);
    random_key_f32(w, h->arch, "attention.temperature_scale", 0.1f);
}

// In OLMo 3 all layers but every fourth see a window.
static void olmo3_keys(const struct random_shape *h, struct gguf_writer *w)
{
    bool windows[RANDOM_MOST_LAYERS];

    for (uint32_t l = 0; l < h->n_layers; l++)
        windows[l] = l % 4 != 3;
    yarn_keys(h, w, 8, 8192);
    random_key_u32(w, h->arch, "attention.sliding_window", h->n_cols < 2048 ? 64 : 4096);
    gguf_write_bools(w, "olmo2.attention.sliding_window_pattern", windows, h->n_layers);
}

void random_family_keys(const struct random_shape *h, struct gguf_writer *w)
{
    if (strncmp(h->arch, "granite", 7) == 0)
        granite_keys(h, w);
    if (strcmp(h->arch, "gemma3") == 0)
        gemma3_keys(h, w);
    if (strcmp(h->arch, "mistral3") == 0)
        mistral3_keys(h, w);
    if (strstr(h->name, "olmo-3"))
        olmo3_keys(h, w);
}
