// random_layers.c - see random_layers.h. Sizes from the config.json of Nemotron 3 Nano and Granite 4.0 H; the
// toys have the same proportions.
#include "model_tools/random/random_layers.h"
#include <string.h>
#include "model_tools/random/random_gemma4.h"
#include "model_tools/random/random_keys.h"

enum { MAMBA_STATE = 128, MAMBA_DIM = 64, KERNEL = 4 };

// Granite: one layer of ten has attention.
enum { GRANITE_FIRST = 5, GRANITE_PERIOD = 10 };

// Nemotron: a letter a layer, as its config.json has them; shorter models have the beginning.
static const char kinds[] = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME";

static bool is_granite(const char *arch)
{
    return strcmp(arch, "granitehybrid") == 0;
}

static bool is_gemma(const char *arch)
{
    return strcmp(arch, "gemma4") == 0;
}

static bool has_mamba(const char *arch)
{
    return is_granite(arch) || strcmp(arch, "nemotron_h_moe") == 0;
}

bool random_layers_knows(const char *arch)
{
    return is_gemma(arch) || has_mamba(arch);
}

uint32_t random_layers_fewest(const char *arch)
{
    return !has_mamba(arch) ? 1 : is_granite(arch) ? GRANITE_FIRST + 1 : (uint32_t)strcspn(kinds, "*") + 1;
}

static uint32_t mamba_heads(const struct random_shape *h)
{
    return is_granite(h->arch) ? 2 * h->n_cols / MAMBA_DIM : 2 * h->n_heads;
}

static uint32_t mamba_groups(const struct random_shape *h)
{
    return is_granite(h->arch) ? 1 : h->n_heads / 4;
}

// Mamba2, attention, or experts: of Nemotron a layer is no more, of Granite one of the first two.
static char kind_of(const struct random_shape *h, uint32_t l)
{
    if (is_granite(h->arch))
        return l % GRANITE_PERIOD == GRANITE_FIRST ? '*' : 'M';
    return kinds[l % (sizeof kinds - 1)];
}

// The half of a layer of this kind.
static uint32_t half_tensors(const struct random_shape *h, char kind, struct random_tensor *tensors)
{
    uint64_t n = h->n_cols, heads = mamba_heads(h), inner = heads * MAMBA_DIM,
             mixed = inner + 2ull * mamba_groups(h) * MAMBA_STATE, n_q = (uint64_t)h->n_heads * h->head_dim,
             n_kv = (uint64_t)h->n_kv_heads * h->head_dim, e = h->n_experts;
    const struct random_tensor mamba[] = {
        { "ssm_in.weight", 0, inner + mixed + heads, n },
        { "ssm_conv1d.weight", 0, mixed, KERNEL },
        { "ssm_conv1d.bias", 0, 0, mixed },
        { "ssm_dt.bias", 0, 0, heads },
        { "ssm_a", 0, 0, heads },
        { "ssm_d", 0, 0, heads },
        { "ssm_norm.weight", 0, 0, inner },
        { "ssm_out.weight", 0, n, inner },
    };
    const struct random_tensor attention[] = {
        { "attn_q.weight", 0, n_q, n },
        { "attn_k.weight", 0, n_kv, n },
        { "attn_v.weight", 0, n_kv, n },
        { "attn_output.weight", 0, n, n_q },
    };
    const struct random_tensor experts[] = {
        { "ffn_gate_inp.weight", 0, e, n },
        { "exp_probs_b.bias", 0, 0, e },
        { "ffn_up_exps.weight", e, h->n_expert_ffn, n },
        { "ffn_down_exps.weight", e, n, h->n_expert_ffn },
        { "ffn_up_shexp.weight", 0, h->n_shared, n },
        { "ffn_down_shexp.weight", 0, n, h->n_shared },
    };
    size_t bytes = kind == 'M' ? sizeof mamba : kind == '*' ? sizeof attention : sizeof experts;

    tensors[0] = (struct random_tensor){ "attn_norm.weight", 0, 0, n };
    memcpy(tensors + 1, kind == 'M' ? mamba : kind == '*' ? attention : experts, bytes);
    return 1 + (uint32_t)(bytes / sizeof *tensors);
}

// Granite's other half: experts beside a shared one, or a gated FFN.
static uint32_t granite_tensors(const struct random_shape *h, struct random_tensor *tensors)
{
    uint64_t n = h->n_cols, e = h->n_experts, ffn = h->n_ffn, wide = h->n_expert_ffn;
    const struct random_tensor dense[] = {
        { "ffn_norm.weight", 0, 0, n },
        { "ffn_gate.weight", 0, ffn, n },
        { "ffn_up.weight", 0, ffn, n },
        { "ffn_down.weight", 0, n, ffn },
    };
    const struct random_tensor experts[] = {
        { "ffn_norm.weight", 0, 0, n },
        { "ffn_gate_inp.weight", 0, e, n },
        { "ffn_gate_exps.weight", e, wide, n },
        { "ffn_up_exps.weight", e, wide, n },
        { "ffn_down_exps.weight", e, n, wide },
        { "ffn_gate_shexp.weight", 0, h->n_shared, n },
        { "ffn_up_shexp.weight", 0, h->n_shared, n },
        { "ffn_down_shexp.weight", 0, n, h->n_shared },
    };
    memcpy(tensors, e ? experts : dense, e ? sizeof experts : sizeof dense);
    return (uint32_t)((e ? sizeof experts : sizeof dense) / sizeof *tensors);
}

uint32_t random_layers_tensors(const struct random_shape *h, uint32_t l,
                               struct random_tensor tensors[RANDOM_LAYER_TENSORS])
{
    if (is_gemma(h->arch))
        return random_gemma4_layer(h, l, tensors);
    uint32_t n = half_tensors(h, kind_of(h, l), tensors);
    return n + (is_granite(h->arch) ? granite_tensors(h, tensors + n) : 0);
}

uint32_t random_layers_top(const struct random_shape *h, struct random_tensor tensors[RANDOM_LAYER_TENSORS])
{
    return is_gemma(h->arch) ? random_gemma4_top(h, tensors) : 0;
}

static void mamba_keys(const struct random_shape *h, struct gguf_writer *w)
{
    int32_t kv[RANDOM_MOST_LAYERS], ffn[RANDOM_MOST_LAYERS];

    for (uint32_t l = 0; l < h->n_layers; l++) {
        char kind = kind_of(h, l);
        kv[l] = kind == '*' ? (int32_t)h->n_kv_heads : 0;
        ffn[l] = kind == 'E' ? (int32_t)h->n_expert_ffn : 0;
    }
    random_key_i32s(w, h->arch, "attention.head_count_kv", kv, h->n_layers);
    if (is_granite(h->arch))
        random_key_u32(w, h->arch, "feed_forward_length", h->n_ffn);
    else
        random_key_i32s(w, h->arch, "feed_forward_length", ffn, h->n_layers);
    random_key_u32(w, h->arch, "ssm.conv_kernel", KERNEL);
    random_key_u32(w, h->arch, "ssm.state_size", MAMBA_STATE);
    random_key_u32(w, h->arch, "ssm.group_count", mamba_groups(h));
    random_key_u32(w, h->arch, "ssm.time_step_rank", mamba_heads(h));
    random_key_u32(w, h->arch, "ssm.inner_size", mamba_heads(h) * MAMBA_DIM);
    random_key_u32(w, h->arch, "expert_shared_feed_forward_length", h->n_shared);
    if (!is_granite(h->arch))
        gguf_write_f32(w, "nemotron_h_moe.expert_weights_scale", 2.5f);
}

void random_layers_keys(const struct random_shape *h, struct gguf_writer *w)
{
    if (is_gemma(h->arch))
        random_gemma4_keys(h, w);
    else
        mamba_keys(h, w);
}
