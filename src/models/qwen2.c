// qwen2.c - Qwen2 and Qwen2.5: the Llama decoder with biases on q, k and v (Qwen team, 2024). RoPE pairs are
// halves in both formats.
#include "models/blocks.h"

static const struct config_key config[] = { DECODER_CONFIG };

static const struct weight_key weights[] = { DECODER_WEIGHTS(0), QKV_BIASES(0) };

static void layer(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                  struct tensor angles)
{
    block_attention(t, s, l, x, angles);
    block_gated_ffn(t, s, l, x, ACTIVATION_SILU);
}

const struct arch arch_qwen2 = { .name = "qwen2",
                                 .model_types = "qwen2",
                                 .activations = "silu swish",
                                 ARCH_TABLES(config, weights),
                                 .layer = layer };
