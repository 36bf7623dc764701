// qwen2moe.c - Qwen1.5 and Qwen2 with experts (Qwen team, 2024): biases on q, k and v; beside the chosen
// experts a shared expert for every token, with a gate of its own. The weights of the chosen experts are not
// normalised.
#include "models/mixture.h"

static const struct config_key config[] = {
    DECODER_CONFIG,
    MIXTURE_CONFIG("num_experts"),
    MIXTURE_NORMALISE(0),
    MIXTURE_SIZE(n_shared, "%s.expert_shared_feed_forward_length", "shared_expert_intermediate_size", 1 << 20,
                 SAME_AS(n_ffn)),
};

static const struct weight_key weights[] = {
    DECODER_ATTENTION(0),
    QKV_BIASES(0),
    MIXTURE_WEIGHTS("model.layers.%u.mlp.gate.weight", "model.layers.%u.mlp.experts.%u.gate_proj.weight",
                    "model.layers.%u.mlp.experts.%u.up_proj.weight",
                    "model.layers.%u.mlp.experts.%u.down_proj.weight"),
    MIXTURE_WEIGHT(shared_router, "blk.%u.ffn_gate_inp_shexp.weight",
                   "model.layers.%u.mlp.shared_expert_gate.weight", DIM_ONE, DIM_COLS),
    MIXTURE_WEIGHT(shared_gate, "blk.%u.ffn_gate_shexp.weight",
                   "model.layers.%u.mlp.shared_expert.gate_proj.weight", MIXTURE_DIM(n_shared), DIM_COLS,
                   .flags = WEIGHT_SHARED_EXPERT),
    MIXTURE_WEIGHT(shared_up, "blk.%u.ffn_up_shexp.weight",
                   "model.layers.%u.mlp.shared_expert.up_proj.weight", MIXTURE_DIM(n_shared), DIM_COLS,
                   .flags = WEIGHT_SHARED_EXPERT),
    MIXTURE_WEIGHT(shared_down, "blk.%u.ffn_down_shexp.weight",
                   "model.layers.%u.mlp.shared_expert.down_proj.weight", DIM_COLS, MIXTURE_DIM(n_shared),
                   .flags = WEIGHT_SHARED_EXPERT),
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

const struct arch arch_qwen2moe = { .name = "qwen2moe",
                                    .model_types = "qwen2_moe",
                                    .activations = "silu swish",
                                    ARCH_TABLES(config, weights),
                                    ARCH_OWN(struct mixture_config, struct mixture_weights),
                                    .check = mixture_check,
                                    .scratch_cols = mixture_scratch_cols,
                                    .layer = layer,
                                    .experts = experts };
