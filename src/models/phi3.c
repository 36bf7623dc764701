// phi3.c - Phi-3, Phi-4 and their mini models (Microsoft, 2024 and 2025): the Llama decoder with q, k and v
// in one matrix, and gate and up in one. Long-context models divide RoPE's frequencies by one of two lists,
// see rope.h.
#include "models/blocks.h"

static const struct config_key config[] = {
    DECODER_CONFIG,
    { CONFIG_AT(window), .gguf = "%s.attention.sliding_window", .json = "sliding_window", .max = 1 << 24,
      DEFAULT(0) },
};

#define LAYER "model.layers.%u."
#define QKV_PART(field, n_rows, number)                                                      \
    L(field, "blk.%u.attn_qkv.weight", LAYER "self_attn.qkv_proj.weight", n_rows, COLS, | 0, \
      .part = &(const struct weight_rows){ { DIM_Q, DIM_KV, DIM_KV }, 3, number })
#define FACTORS(field, name) W(field, name ".weight", NULL, ONE, PAIRS, | WEIGHT_OPTIONAL)

static const struct weight_key weights[] = {
    DECODER_TOP,
    FACTORS(rope_long, "rope_factors_long"),
    FACTORS(rope_short, "rope_factors_short"),
    L(attn_norm, "blk.%u.attn_norm.weight", LAYER "input_layernorm.weight", ONE, COLS),
    QKV_PART(q, Q, 0),
    QKV_PART(k, KV, 1),
    QKV_PART(v, KV, 2),
    L(o, "blk.%u.attn_output.weight", LAYER "self_attn.o_proj.weight", COLS, Q),
    L(ffn_norm, "blk.%u.ffn_norm.weight", LAYER "post_attention_layernorm.weight", ONE, COLS),
    DECODER_FUSED_FFN,
};

static bool complete(struct model *m, struct err *err)
{
    return model_read_rotated(m, 1, err);
}

// GGUF files have the lists and say nothing of the kind.
static bool layers(struct model *m, struct err *err)
{
    struct rope_config *r = &m->config.rope[0];

    (void)err;
    if (model_file_tensor(m->file, "rope_factors_long.weight") ||
        model_file_tensor(m->file, "rope_factors_short.weight"))
        r->type = ROPE_LONG;
    if (r->type == ROPE_LONG && r->original_context < m->config.n_context)
        r->factor = (float)m->config.n_context / (float)r->original_context;
    return true;
}

static void layer(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                  struct tensor angles)
{
    block_attention(t, s, l, x, angles);
    block_gated_ffn(t, s, l, x, ACTIVATION_SILU);
}

const struct arch arch_phi3 = { .name = "phi3",
                                .model_types = "phi3",
                                .activations = "silu swish",
                                ARCH_TABLES(config, weights),
                                .complete = complete,
                                .layers = layers,
                                .layer = layer };
