// glm4moe.c - GLM-4.5, 4.5-Air and 4.6 (Zhipu AI, 2025): GQA that rotates the first half of a head, biases on
// q, k and v, some dense layers, then mixtures with a shared expert, chosen by sigmoid scores and a
// correction bias. Norms of q and k where the model has them. A layer behind the model's drafts tokens.
#include "models/mixture.h"

struct glm_config {
    struct mixture_config mixture; // first
    uint32_t head_norms;           // q and k have a norm a head
};

static const struct config_key config[] = {
    DECODER_CONFIG,
    MIXTURE_DEEPSEEK_CONFIG,
    { CONFIG_OWN(struct glm_config, head_norms), .is_bool = true, .json = "use_qk_norm", .max = 1,
      DEFAULT(0) },
};

#define HEAD_NORM(field, part)                                                                      \
    {                                                                                               \
        .per_layer = true, .place = offsetof(struct layer_weights, field) / sizeof(void *),         \
        .gguf = "blk.%u.attn_" part ".weight", .json = "model.layers.%u.self_attn." part ".weight", \
        .rows = DIM_ONE, .cols = DIM_HEAD, .when = OWN_DIM(struct glm_config, head_norms)           \
    }

static const struct weight_key weights[] = {
    DECODER_ATTENTION_NORM(0, "blk.%u.post_attention_norm.weight"),
    QKV_BIASES(WEIGHT_OPTIONAL), // attention_bias
    HEAD_NORM(q_norm, "q_norm"),
    HEAD_NORM(k_norm, "k_norm"),
    MIXTURE_DEEPSEEK_WEIGHTS,
};

// What files of both formats leave out: GGUF's the norms of q and k, checkpoints that weights are normalised.
static bool complete(struct model *m, struct err *err)
{
    struct glm_config *c = m->own;
    bool gguf = model_file_format(m->file) == MODEL_GGUF;

    if (gguf)
        c->head_norms = model_file_tensor(m->file, "blk.0.attn_q_norm.weight") != NULL;
    if (!model_file_meta(m->file, gguf ? "glm4moe.expert_weights_norm" : "norm_topk_prob"))
        c->mixture.normalise = 1;
    return model_read_rotated(m, 0.5, err) && mixture_complete(m, GATING_SIGMOID, err);
}

static void layer(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                  struct tensor angles)
{
    block_attention(t, s, l, x, angles);
    mixture_or_dense_block(t, s, l, x);
}

const struct arch arch_glm4moe = { .name = "glm4moe",
                                   .model_types = "glm4_moe",
                                   .activations = "silu swish",
                                   ARCH_TABLES(config, weights),
                                   ARCH_OWN(struct glm_config, struct mixture_weights),
                                   .complete = complete,
                                   .drafts = true,
                                   .check = mixture_check,
                                   .scratch_cols = mixture_scratch_cols,
                                   .layer = layer,
                                   .experts = mixture_or_dense_block };
