// olmo2.c - OLMo 2 and 3 (Ai2, 2024 and 2025): norms behind both halves and none before them, and q and k
// normalised over all heads at once. In OLMo 3 all layers but every fourth see a window, and YaRN stretches
// only the rotation of those that see all.
#include "models/blocks.h"
#include "models/binding/layer_config.h"

struct olmo_config {
    uint32_t period; // every so many layers one sees all
};

static const struct config_key config[] = {
    DECODER_CONFIG,
    { CONFIG_AT(window), .gguf = "%s.attention.sliding_window", .json = "sliding_window", .max = 1 << 24,
      DEFAULT(0) },
    { CONFIG_OWN(struct olmo_config, period), .is_period = true,
      .gguf = "%s.attention.sliding_window_pattern", .json = "sliding_window_pattern", .min = 1, .max = 4097,
      DEFAULT(4) },
};

#define LAYER "model.layers.%u."
static const struct weight_key weights[] = {
    DECODER_TOP,
    DECODER_PROJECTIONS(0),
    L(q_norm, "blk.%u.attn_q_norm.weight", LAYER "self_attn.q_norm.weight", ONE, Q),
    L(k_norm, "blk.%u.attn_k_norm.weight", LAYER "self_attn.k_norm.weight", ONE, KV),
    L(attn_out_norm, "blk.%u.post_attention_norm.weight", LAYER "post_attention_layernorm.weight", ONE, COLS),
    DECODER_FFN,
    L(ffn_out_norm, "blk.%u.post_ffw_norm.weight", LAYER "post_feedforward_layernorm.weight", ONE, COLS),
};

static bool complete(struct model *m, struct err *err)
{
    return layer_config_types(m, &((struct olmo_config *)m->own)->period, err);
}

static bool layers(struct model *m, struct err *err)
{
    const struct olmo_config *c = m->own;
    struct rope_config *rope = m->config.rope;

    (void)err;
    if (m->config.window == 0)
        return true;
    if (rope[0].type != ROPE_PLAIN)
        rope[1] = (struct rope_config){ .base = rope[0].base, .n_dims = rope[0].n_dims };
    layer_config_windows(m, c->period, rope[0].type != ROPE_PLAIN);
    return true;
}

static void layer(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                  struct tensor angles)
{
    struct tensor q = block_qkv_whole(t, s, l, x, angles);

    block_attend(t, s, l, x, (struct attend){ .q = q, .window = stage_layer_config(s, l)->window });
    block_gated_ffn(t, s, l, x, ACTIVATION_SILU);
}

const struct arch arch_olmo2 = { .name = "olmo2",
                                 .model_types = "olmo2 olmo3",
                                 .activations = "silu swish",
                                 ARCH_TABLES(config, weights),
                                 .own_config_bytes = sizeof(struct olmo_config),
                                 .complete = complete,
                                 .layers = layers,
                                 .layer = layer };
