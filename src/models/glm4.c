// glm4.c - GLM-4-0414 (Zhipu AI, 2025): norms before and behind both halves, biases on q, k and v, half a
// head rotated in neighbouring pairs in both formats, gate and up in one matrix.
#include "models/blocks.h"

static const struct config_key config[] = { DECODER_CONFIG };

#define LAYER "model.layers.%u."
static const struct weight_key weights[] = {
    DECODER_TOP,
    L(attn_norm, "blk.%u.attn_norm.weight", LAYER "input_layernorm.weight", ONE, COLS),
    DECODER_PROJECTIONS(0),
    QKV_BIASES(WEIGHT_OPTIONAL), // attention_bias
    L(attn_out_norm, "blk.%u.post_attention_norm.weight", LAYER "post_self_attn_layernorm.weight", ONE, COLS),
    L(ffn_norm, "blk.%u.ffn_norm.weight", LAYER "post_attention_layernorm.weight", ONE, COLS),
    DECODER_FUSED_FFN,
    L(ffn_out_norm, "blk.%u.post_ffw_norm.weight", LAYER "post_mlp_layernorm.weight", ONE, COLS),
};

static bool complete(struct model *m, struct err *err)
{
    m->pairs = ROPE_ADJACENT;
    return model_read_rotated(m, 0.5, err);
}

static void layer(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                  struct tensor angles)
{
    block_attention(t, s, l, x, angles);
    block_gated_ffn(t, s, l, x, ACTIVATION_SILU);
}

const struct arch arch_glm4 = { .name = "glm4",
                                .model_types = "glm4",
                                .activations = "silu swish",
                                ARCH_TABLES(config, weights),
                                .complete = complete,
                                .layer = layer };
