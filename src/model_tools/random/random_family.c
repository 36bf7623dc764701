// random_family.c - see random_family.h.
#include "model_tools/random/random_family.h"
#include <stdio.h>
#include <string.h>

static void key_u32(const struct random_shape *h, struct gguf_writer *w, const char *part, uint32_t value)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", h->arch, part);
    gguf_write_u32(w, key, value);
}

static void key_f32(const struct random_shape *h, struct gguf_writer *w, const char *part, float value)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", h->arch, part);
    gguf_write_f32(w, key, value);
}

static void key_str(const struct random_shape *h, struct gguf_writer *w, const char *part, struct str value)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", h->arch, part);
    gguf_write_str(w, key, value);
}

static void granite_keys(const struct random_shape *h, struct gguf_writer *w)
{
    key_f32(h, w, "embedding_scale", 12);
    key_f32(h, w, "residual_scale", 0.22f);
    key_f32(h, w, "attention.scale", 1.0f / (float)h->head_dim);
    key_f32(h, w, "logit_scale", 6);
}

static void gemma3_keys(const struct random_shape *h, struct gguf_writer *w)
{
    bool small = h->n_cols < 2048;

    key_u32(h, w, "attention.sliding_window", small ? 512 : 1024);
    if (!small)
        key_str(h, w, "rope.scaling.type", STR("linear"));
    key_f32(h, w, "rope.scaling.factor", small ? 1 : 8);
}

static void yarn_keys(const struct random_shape *h, struct gguf_writer *w, float factor, uint32_t original)
{
    key_str(h, w, "rope.scaling.type", STR("yarn"));
    key_f32(h, w, "rope.scaling.factor", factor);
    key_u32(h, w, "rope.scaling.original_context_length", original);
}

static void mistral3_keys(const struct random_shape *h, struct gguf_writer *w)
{
    if (strncmp(h->name, "devstral-small-2", 16) == 0)
        yarn_keys(h, w, 48, 8192);
    else
        yarn_keys(h, w, 16, 16384);
    key_f32(h, w, "rope.scaling.yarn_log_multiplier", 1);
    key_f32(h, w, "attention.temperature_scale", 0.1f);
}

// In OLMo 3 all layers but every fourth see a window.
static void olmo3_keys(const struct random_shape *h, struct gguf_writer *w)
{
    bool windows[RANDOM_MOST_LAYERS];

    for (uint32_t l = 0; l < h->n_layers; l++)
        windows[l] = l % 4 != 3;
    yarn_keys(h, w, 8, 8192);
    key_u32(h, w, "attention.sliding_window", h->n_cols < 2048 ? 64 : 4096);
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
