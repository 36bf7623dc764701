// random_hybrid.c - see random_hybrid.h. Shapes from the config.json of each model; the toys are for tests.
#include "model_tools/random/random_hybrid.h"
#include <stdio.h>
#include <string.h>
#include "model_tools/random/random_keys.h"
#include "model_tools/random/random_shapes.h"

#define LFM2_LAYERS     (1u << 2 | 1u << 5 | 1u << 8 | 1u << 10 | 1u << 12 | 1u << 14)
#define LFM2_26_LAYERS  (1u << 2 | 1u << 5 | 1u << 9 | 1u << 13 | 1u << 17 | 1u << 21 | 1u << 24 | 1u << 27)
#define LFM2_MOE_LAYERS (1u << 2 | 1u << 6 | 1u << 10 | 1u << 14 | 1u << 18 | 1u << 21)

static const struct random_hybrid hybrids[] = {
    { "toy-lfm2", 1u << 1, 0, 0, 0, 3, false },
    { "toy-lfm2moe", 1u << 2, 0, 0, 0, 3, false },
    { "lfm2-350m", LFM2_LAYERS, 0, 0, 0, 3, false },
    { "lfm2-700m", LFM2_LAYERS, 0, 0, 0, 3, false },
    { "lfm2-1.2b", LFM2_LAYERS, 0, 0, 0, 3, false },
    { "lfm2-2.6b", LFM2_26_LAYERS, 0, 0, 0, 3, false },
    { "lfm2-8b-a1b", LFM2_MOE_LAYERS, 0, 0, 0, 3, false },
    { "toy-qwen35", 0, 2, 4, 64, 4, false },
    { "toy-qwen35moe", 0, 2, 4, 64, 4, false },
    { "toy-qwen35-mtp", 0, 2, 4, 64, 4, true },
    { "toy-qwen35moe-mtp", 0, 2, 4, 64, 4, true },
    { "qwen3.5-0.8b", 0, 16, 16, 128, 4, false },
    { "qwen3.5-2b", 0, 16, 16, 128, 4, false },
    { "qwen3.5-4b", 0, 16, 32, 128, 4, false },
    { "qwen3.5-9b", 0, 16, 32, 128, 4, false },
    { "qwen3.5-9b-mtp", 0, 16, 32, 128, 4, true },
    { "qwen3.5-27b", 0, 16, 48, 128, 4, false },
    { "qwen3.5-35b-a3b", 0, 16, 32, 128, 4, false },
    { "qwen3.5-122b-a10b", 0, 16, 64, 128, 4, false },
    { "qwen3.5-397b-a17b", 0, 16, 64, 128, 4, false },
};

const struct random_hybrid *random_hybrid_find(const char *name)
{
    for (size_t i = 0; i < sizeof hybrids / sizeof *hybrids; i++)
        if (strcmp(hybrids[i].name, name) == 0)
            return &hybrids[i];
    return NULL;
}

bool random_hybrid_attends(const struct random_hybrid *h, uint32_t l)
{
    return h->attention ? l < 32 && h->attention >> l & 1 : l % 4 == 3;
}

uint32_t random_hybrid_fewest(const struct random_hybrid *h)
{
    uint32_t l = 0;

    while (h->attention && !random_hybrid_attends(h, l))
        l++;
    return l + 1;
}

uint32_t random_hybrid_tensors(const struct random_hybrid *h, uint64_t n_cols,
                               struct random_hybrid_tensor tensors[RANDOM_HYBRID_TENSORS])
{
    uint64_t n_values = (uint64_t)h->n_v_heads * h->dim, n_mixed = 2ull * h->n_k_heads * h->dim + n_values;
    const struct random_hybrid_tensor convolution[] = {
        { "shortconv.conv.weight", n_cols, h->kernel },
        { "shortconv.in_proj.weight", 3 * n_cols, n_cols },
        { "shortconv.out_proj.weight", n_cols, n_cols },
    };
    const struct random_hybrid_tensor delta[] = {
        { "attn_qkv.weight", n_mixed, n_cols },      { "attn_gate.weight", n_values, n_cols },
        { "ssm_beta.weight", h->n_v_heads, n_cols }, { "ssm_alpha.weight", h->n_v_heads, n_cols },
        { "ssm_conv1d.weight", n_mixed, h->kernel }, { "ssm_a", 0, h->n_v_heads },
        { "ssm_dt.bias", 0, h->n_v_heads },          { "ssm_norm.weight", 0, h->dim },
        { "ssm_out.weight", n_cols, n_values },
    };
    memcpy(tensors, h->dim ? delta : convolution, h->dim ? sizeof delta : sizeof convolution);
    return h->dim ? sizeof delta / sizeof *delta : sizeof convolution / sizeof *convolution;
}

uint32_t random_hybrid_draft(uint64_t n_cols, struct random_hybrid_tensor tensors[RANDOM_HYBRID_TENSORS])
{
    const struct random_hybrid_tensor draft[] = {
        { "nextn.enorm.weight", 0, n_cols },
        { "nextn.hnorm.weight", 0, n_cols },
        { "nextn.eh_proj.weight", n_cols, 2 * n_cols },
        { "nextn.shared_head_norm.weight", 0, n_cols },
    };
    memcpy(tensors, draft, sizeof draft);
    return sizeof draft / sizeof *draft;
}

// Pairs of a head that turn by time, height and width; with text alone all turn by the token's place.
static void rope_sections(struct gguf_writer *w, const char *arch, uint32_t n_rotated)
{
    int32_t n = (int32_t)n_rotated / 2;
    const int32_t sections[] = { (n + 2) / 3, (n + 1) / 3, n / 3, 0 };
    char name[96];

    snprintf(name, sizeof name, "%s.rope.dimension_sections", arch);
    gguf_write_i32s(w, name, sections, sizeof sections / sizeof *sections);
}

void random_hybrid_keys(const struct random_hybrid *h, struct gguf_writer *w, const char *arch,
                        uint32_t n_layers, uint32_t n_kv_heads, uint32_t n_rotated)
{
    int32_t heads[RANDOM_MOST_LAYERS];
    char name[96];

    if (h->dim) {
        random_key_u32(w, arch, "attention.head_count_kv", n_kv_heads);
        random_key_u32(w, arch, "ssm.conv_kernel", h->kernel);
        random_key_u32(w, arch, "ssm.state_size", h->dim);
        random_key_u32(w, arch, "ssm.group_count", h->n_k_heads);
        random_key_u32(w, arch, "ssm.time_step_rank", h->n_v_heads);
        random_key_u32(w, arch, "ssm.inner_size", h->n_v_heads * h->dim);
        random_key_u32(w, arch, "full_attention_interval", 4);
        rope_sections(w, arch, n_rotated);
        if (h->drafts)
            random_key_u32(w, arch, "nextn_predict_layers", 1);
        return;
    }
    random_key_u32(w, arch, "shortconv.l_cache", h->kernel);
    for (uint32_t l = 0; l < n_layers; l++)
        heads[l] = random_hybrid_attends(h, l) ? (int32_t)n_kv_heads : 0;
    snprintf(name, sizeof name, "%s.attention.head_count_kv", arch);
    gguf_write_i32s(w, name, heads, n_layers);
}
