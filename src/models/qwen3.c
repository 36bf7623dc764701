// qwen3.c - Qwen3, dense: no biases, but an RMSNorm per head on q and k before the rotation (Qwen team,
// 2025).
#include "models/blocks.h"

static const struct config_key config[] = { DECODER_CONFIG };

static const struct weight_key weights[] = {
    DECODER_WEIGHTS(0),
    L(q_norm, "blk.%u.attn_q_norm.weight", "model.layers.%u.self_attn.q_norm.weight", ONE, HEAD),
    L(k_norm, "blk.%u.attn_k_norm.weight", "model.layers.%u.self_attn.k_norm.weight", ONE, HEAD),
    W(rank_out, "cls.output.weight", "score.weight", LABELS, COLS, | WEIGHT_OPTIONAL),
};

static void layer(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                  struct tensor angles)
{
    block_attention(t, s, l, x, angles);
    block_gated_ffn(t, s, l, x, ACTIVATION_SILU);
}

const struct arch arch_qwen3 = { .name = "qwen3",
                                 .model_types = "qwen3",
                                 .activations = "silu swish",
                                 .ranks_by_words = true,
                                 ARCH_TABLES(config, weights),
                                 .layer = layer };
