// granitehybrid.c - Granite 4 H, dense or with experts (IBM, 2025): most layers are Mamba2 (Dao and Gu,
// 2024), the others GQA without any rotation; Granite's four factors. A shared expert without a gate, which
// in dense models is all.
#include "models/binding/layer_config.h"
#include "models/granite.h"
#include "models/recurrent/mamba.h"
#include "models/mixture.h"

struct granite_hybrid_config {
    struct mixture_config mixture; // first
    struct granite_factors factors;
    struct mamba_config mamba;
    uint32_t expand; // config.json: inner is this often the width
    uint32_t is_dense;
};

struct granite_hybrid_weights {
    struct mixture_weights mixture; // first
    struct mamba_weights mamba;
};

#define HYBRID_DIM(field) OWN_DIM(struct granite_hybrid_config, field)
#define HYBRID_SIZE(field, gguf_name, json_name, least, largest, ...)                                        \
    {                                                                                                        \
        CONFIG_OWN(struct granite_hybrid_config, field), .gguf = gguf_name, .json = json_name, .min = least, \
                                                         .max = largest, __VA_ARGS__                         \
    }

static const struct config_key config[] = {
    DECODER_CONFIG,
    HYBRID_SIZE(mixture.n_experts, "%s.expert_count", "num_local_experts", 0, ROUTE_MAX_EXPERTS, DEFAULT(0)),
    HYBRID_SIZE(mixture.n_slots, "%s.expert_used_count", "num_experts_per_tok", 0, ROUTE_MAX_SLOTS,
                DEFAULT(0)),
    HYBRID_SIZE(mixture.n_shared, "%s.expert_shared_feed_forward_length", "shared_intermediate_size", 0,
                1 << 20, DEFAULT(0)),
    GRANITE_FACTORS(granite_hybrid_config),
    MAMBA_SIZE(granite_hybrid_config, n_heads, "%s.ssm.time_step_rank", "mamba_n_heads", 1, 4096, REQUIRED),
    MAMBA_SIZE(granite_hybrid_config, d_state, "%s.ssm.state_size", "mamba_d_state", 1, SCAN_MAX_DIM,
               REQUIRED),
    MAMBA_SIZE(granite_hybrid_config, n_groups, "%s.ssm.group_count", "mamba_n_groups", 1, 1024, DEFAULT(1)),
    MAMBA_SIZE(granite_hybrid_config, kernel, "%s.ssm.conv_kernel", "mamba_d_conv", 2, CONV_MAX_KERNEL,
               REQUIRED),
    MAMBA_SIZE(granite_hybrid_config, inner, "%s.ssm.inner_size", NULL, 1, 1 << 20, REQUIRED),
    HYBRID_SIZE(expand, NULL, "mamba_expand", 1, 64, DEFAULT(2)),
};

#define LAYER     "model.layers.%u."
#define ATTENTION LAYER "self_attn."
#define EXPERTS   LAYER "block_sparse_moe."
#define SHARED    LAYER "shared_mlp."
#define DENSE(field, gguf_name, json_name, n_rows, n_cols, ...)                                \
    {                                                                                          \
        .per_layer = true, .place = offsetof(struct layer_weights, field) / sizeof(void *),    \
        .gguf = "blk.%u." gguf_name, .json = SHARED json_name, .rows = n_rows, .cols = n_cols, \
        .when = HYBRID_DIM(is_dense), __VA_ARGS__                                              \
    }
#define OF_MIXTURE .when = MIXTURE_DIM(n_experts)

static const struct weight_key weights[] = {
    W(embed, "token_embd.weight", "model.embed_tokens.weight", VOCAB, COLS),
    W(out_norm, "output_norm.weight", "model.norm.weight", ONE, COLS),
    W(head, "output.weight", "lm_head.weight", VOCAB, COLS, | WEIGHT_TIED),
    L(attn_norm, "blk.%u.attn_norm.weight", LAYER "input_layernorm.weight", ONE, COLS),
    L(q, "blk.%u.attn_q.weight", ATTENTION "q_proj.weight", Q, COLS,
      | WEIGHT_ROPE_PAIRED IN_LAYERS(LAYERS_PAGES)),
    L(k, "blk.%u.attn_k.weight", ATTENTION "k_proj.weight", KV, COLS,
      | WEIGHT_ROPE_PAIRED IN_LAYERS(LAYERS_PAGES)),
    L(v, "blk.%u.attn_v.weight", ATTENTION "v_proj.weight", KV, COLS, IN_LAYERS(LAYERS_PAGES)),
    L(o, "blk.%u.attn_output.weight", ATTENTION "o_proj.weight", COLS, Q, IN_LAYERS(LAYERS_PAGES)),
    MAMBA_WEIGHTS(granite_hybrid_config, granite_hybrid_weights, LAYER "mamba."),
    L(ffn_norm, "blk.%u.ffn_norm.weight", LAYER "post_attention_layernorm.weight", ONE, COLS),
    DENSE(gate, "ffn_gate.weight", "input_linear.weight", DIM_FFN, DIM_COLS, .half = 1),
    DENSE(up, "ffn_up.weight", "input_linear.weight", DIM_FFN, DIM_COLS, .half = 2),
    DENSE(down, "ffn_down.weight", "output_linear.weight", DIM_COLS, DIM_FFN),
    MIXTURE_WEIGHT(router, "blk.%u.ffn_gate_inp.weight", EXPERTS "router.layer.weight",
                   MIXTURE_DIM(n_experts), DIM_COLS, OF_MIXTURE),
    MIXTURE_WEIGHT(gate, "blk.%u.ffn_gate_exps.weight", EXPERTS "input_linear.weight", MIXTURE_DIM(n_ffn),
                   DIM_COLS, MIXTURE_STACK, OF_MIXTURE, .half = 1),
    MIXTURE_WEIGHT(up, "blk.%u.ffn_up_exps.weight", EXPERTS "input_linear.weight", MIXTURE_DIM(n_ffn),
                   DIM_COLS, MIXTURE_STACK, OF_MIXTURE, .half = 2),
    MIXTURE_WEIGHT(down, "blk.%u.ffn_down_exps.weight", EXPERTS "output_linear.weight", DIM_COLS,
                   MIXTURE_DIM(n_ffn), MIXTURE_STACK, OF_MIXTURE),
    MIXTURE_WEIGHT(shared_gate, "blk.%u.ffn_gate_shexp.weight", SHARED "input_linear.weight",
                   MIXTURE_DIM(n_shared), DIM_COLS, OF_MIXTURE, .half = 1),
    MIXTURE_WEIGHT(shared_up, "blk.%u.ffn_up_shexp.weight", SHARED "input_linear.weight",
                   MIXTURE_DIM(n_shared), DIM_COLS, OF_MIXTURE, .half = 2),
    MIXTURE_WEIGHT(shared_down, "blk.%u.ffn_down_shexp.weight", SHARED "output_linear.weight", DIM_COLS,
                   MIXTURE_DIM(n_shared), OF_MIXTURE),
};

static bool is_gguf(const struct model *m)
{
    return model_file_format(m->file) == MODEL_GGUF;
}

static bool complete(struct model *m, struct err *err)
{
    struct granite_hybrid_config *c = m->own;

    c->mamba.inner = is_gguf(m) ? c->mamba.inner : c->expand * m->config.n_cols;
    c->is_dense = c->mixture.n_experts == 0;
    c->mixture.n_ffn = m->config.n_ffn;
    if (c->is_dense && c->mixture.n_shared)
        m->config.n_ffn = c->mixture.n_shared;
    return mamba_complete(m, &c->mamba, err);
}

static bool layers(struct model *m, struct err *err)
{
    const struct granite_hybrid_config *own = m->own;

    for (uint32_t l = 0; l < m->config.n_layers; l++) {
        struct layer_config *c = &m->layer_configs[l];
        bool recurrent = c->n_kv_heads == 0;
        if (!is_gguf(m) && !layer_config_recurrent(m, "layer_types", l, &recurrent, err))
            return false;
        c->n_kv_heads = m->config.n_kv_heads;
        c->state_words = recurrent ? mamba_state_words(&own->mamba) : 0;
    }
    return true;
}

static bool check(const struct model *m, struct err *err)
{
    const struct granite_hybrid_config *c = m->own;

    if (!c->is_dense && (c->mixture.n_slots == 0 || c->mixture.n_shared == 0))
        return err_set(err, ERR_INPUT, "%s: %u experts, but %u for a token and %u numbers of a shared one",
                       model_file_path(m->file), c->mixture.n_experts, c->mixture.n_slots,
                       c->mixture.n_shared);
    return c->is_dense || mixture_check(m, err);
}

// Files that do not say otherwise have no rotation.
static void factors(struct model *m)
{
    const struct granite_hybrid_config *c = m->own;
    const char *key = is_gguf(m) ? "granitehybrid.rope.scaling.finetuned" : "position_embedding_type";
    const struct meta *rotates = model_file_meta(m->file, key);

    if (!rotates ||
        (rotates->type == META_BOOL ? !rotates->b
                                    : rotates->type != META_STRING || !str_is(rotates->s, "rope")))
        m->config.rope[0].type = ROPE_NONE;
    granite_factors_set(m, &c->factors);
}

static uint64_t scratch_cols(const struct model *m)
{
    const struct granite_hybrid_config *c = m->own;
    return mamba_scratch_cols(m, &c->mamba) + (c->is_dense ? 0 : mixture_scratch_cols(m));
}

static void feed_forward(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x)
{
    const struct granite_hybrid_config *c = s->model->own;

    if (c->is_dense)
        block_gated_ffn(t, s, l, x, ACTIVATION_SILU);
    else
        mixture_block(t, s, l, x,
                      (struct route_rule){ ROUTE_CHOSEN, .n_groups = 1, .n_used_groups = 1, .scale = 1 });
}

static void layer(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                  struct tensor angles)
{
    const struct granite_hybrid_config *c = s->model->own;
    const struct granite_hybrid_weights *w = stage_layer_own(s, l);

    if (stage_layer_config(s, l)->state_words > 0)
        mamba_block(t, s, l, x, &c->mamba, &w->mamba);
    else
        block_attention(t, s, l, x, angles);
    feed_forward(t, s, l, x);
}

const struct arch arch_granitehybrid = { .name = "granitehybrid",
                                         .model_types = "granitemoehybrid",
                                         .gguf_differs = true,
                                         .activations = "silu swish",
                                         ARCH_TABLES(config, weights),
                                         ARCH_OWN(struct granite_hybrid_config,
                                                  struct granite_hybrid_weights),
                                         .complete = complete,
                                         .layers = layers,
                                         .check = check,
                                         .factors = factors,
                                         .scratch_cols = scratch_cols,
                                         .layer = layer,
                                         .experts = feed_forward };
