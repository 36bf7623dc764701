// smolvlm.c - the language half of Idefics3, SmolVLM and SmolVLM2 in a checkpoint with both halves: the Llama
// decoder. (Laurencon et al. 2024; Marafioti et al. 2025.) GGUF files have it as "llama". The vision tower is
// in idefics3.c.
#include "models/blocks.h"

static const struct config_key config[] = { DECODER_CONFIG };

static const struct weight_key weights[] = { DECODER_WEIGHTS(0) };

static void layer(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                  struct tensor angles)
{
    block_attention(t, s, l, x, angles);
    block_gated_ffn(t, s, l, x, ACTIVATION_SILU);
}

const struct arch arch_smolvlm = { .name = "smolvlm",
                                   .model_types = "smolvlm idefics3",
                                   .json_prefix = "model.text_model.",
                                   .activations = "silu swish",
                                   ARCH_TABLES(config, weights),
                                   .layer = layer };
