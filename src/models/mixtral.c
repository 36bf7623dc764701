// mixtral.c - Mixtral (Jiang et al., 2024): Mistral's attention, every layer a mixture. GGUF files call it
// llama, with experts.
#include "models/mixture.h"

static const struct config_key config[] = {
    DECODER_CONFIG,
    MIXTURE_CONFIG("num_local_experts"),
    MIXTURE_NORMALISE(1),
    { CONFIG_AT(window), .gguf = "%s.attention.sliding_window", .json = "sliding_window", .min = 0,
      .max = 1 << 24, DEFAULT(0) },
};

static const struct weight_key weights[] = {
    DECODER_ATTENTION(WEIGHT_ROPE_PAIRED),
    MIXTURE_WEIGHTS("model.layers.%u.block_sparse_moe.gate.weight",
                    "model.layers.%u.block_sparse_moe.experts.%u.w1.weight",
                    "model.layers.%u.block_sparse_moe.experts.%u.w3.weight",
                    "model.layers.%u.block_sparse_moe.experts.%u.w2.weight"),
};

static void experts(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x)
{
    mixture_block(t, s, l, x,
                  (struct route_rule){ ROUTE_SOFTMAX, .n_groups = 1, .n_used_groups = 1, .scale = 1 });
}

static void layer(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                  struct tensor angles)
{
    block_attention(t, s, l, x, angles);
    experts(t, s, l, x);
}

const struct arch arch_mixtral = { .name = "llama",
                                   .with = "llama.expert_count",
                                   .model_types = "mixtral",
                                   .activations = "silu swish",
                                   ARCH_TABLES(config, weights),
                                   ARCH_OWN(struct mixture_config, struct mixture_weights),
                                   .check = mixture_check,
                                   .scratch_cols = mixture_scratch_cols,
                                   .layer = layer,
                                   .experts = experts };
