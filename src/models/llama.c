// llama.c - Llama 2 and 3, SmolLM, TinyLlama, Mistral, Devstral: pre-norm decoder, RoPE, GQA, SwiGLU.
// (Touvron et al. 2023; Jiang et al. 2023.) Three parts: config keys, tensors, one layer.
#include "models/blocks.h"

static const struct config_key config[] = {
    DECODER_CONFIG,
    { CONFIG_AT(window), .gguf = "%s.attention.sliding_window", .json = "sliding_window", .min = 0,
      .max = 1 << 24, DEFAULT(0) },
};

static const struct weight_key weights[] = {
    DECODER_WEIGHTS(WEIGHT_ROPE_PAIRED),
    QKV_BIASES(WEIGHT_OPTIONAL | WEIGHT_ROPE_PAIRED), // attention_bias
    L(o_bias, "blk.%u.attn_output.bias", "model.layers.%u.self_attn.o_proj.bias", ONE, COLS,
      | WEIGHT_OPTIONAL),
};

static void layer(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                  struct tensor angles)
{
    block_attention(t, s, l, x, angles);
    block_gated_ffn(t, s, l, x, ACTIVATION_SILU);
}

const struct arch arch_llama = { .name = "llama",
                                 .model_types = "llama mistral",
                                 .activations = "silu swish",
                                 ARCH_TABLES(config, weights),
                                 .layer = layer };
