// qwen3moe.c - Qwen3 with experts (Qwen team, 2025): Qwen3's attention, every layer a mixture without a
// shared expert.
#include "models/mixture.h"

static const struct config_key config[] = { DECODER_CONFIG, MIXTURE_CONFIG("num_experts"),
                                            MIXTURE_NORMALISE(1) };

static const struct weight_key weights[] = {
    DECODER_ATTENTION(0),
    L(q_norm, "blk.%u.attn_q_norm.weight", "model.layers.%u.self_attn.q_norm.weight", ONE, HEAD),
    L(k_norm, "blk.%u.attn_k_norm.weight", "model.layers.%u.self_attn.k_norm.weight", ONE, HEAD),
    MIXTURE_WEIGHTS("model.layers.%u.mlp.gate.weight", "model.layers.%u.mlp.experts.%u.gate_proj.weight",
                    "model.layers.%u.mlp.experts.%u.up_proj.weight",
                    "model.layers.%u.mlp.experts.%u.down_proj.weight"),
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

const struct arch arch_qwen3moe = { .name = "qwen3moe",
                                    .model_types = "qwen3_moe",
                                    .activations = "silu swish",
                                    ARCH_TABLES(config, weights),
                                    ARCH_OWN(struct mixture_config, struct mixture_weights),
                                    .check = mixture_check,
                                    .scratch_cols = mixture_scratch_cols,
                                    .layer = layer,
                                    .experts = experts };
