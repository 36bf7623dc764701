// internvl.c - the language half of InternVL3 in a checkpoint with both halves: the Qwen2 decoder. (Zhu et
// al., 2025.) GGUF files have it as "qwen2". The vision tower is in internvit.c.
#include "models/blocks.h"

static const struct config_key config[] = { DECODER_CONFIG };

static const struct weight_key weights[] = { DECODER_WEIGHTS(0), QKV_BIASES(0) };

static void layer(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                  struct tensor angles)
{
    block_attention(t, s, l, x, angles);
    block_gated_ffn(t, s, l, x, ACTIVATION_SILU);
}

const struct arch arch_internvl = { .name = "internvl",
                                    .model_types = "internvl",
                                    .json_prefix = "model.language_model.",
                                    .activations = "silu swish",
                                    ARCH_TABLES(config, weights),
                                    .layer = layer };
