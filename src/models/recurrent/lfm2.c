// lfm2.c - LFM2 and LFM2.5 (Liquid AI, 2025): most layers mix tokens by a convolution over three of them,
// between two gates, the others by GQA with norms of q and k. Dense, or with experts behind some dense layers
// (8B-A1B), chosen by sigmoid scores and a bias of each expert.
#include "models/binding/layer_config.h"
#include "models/mixture.h"
#include "ops/conv_step/conv_step.h"
#include "ops/matmul/matmul.h"
#include "ops/rmsnorm/rmsnorm.h"

struct lfm2_config {
    struct mixture_config mixture; // first; unused in the dense model
    uint32_t kernel;               // of the convolution
    uint32_t n_gates;              // 3 n_cols: what in_proj makes
};

struct lfm2_weights {
    struct mixture_weights mixture; // first
    const struct weight *conv, *in, *out;
};

#define LFM2_CONFIG                                                                                     \
    SIZE_KEY(n_layers, "%s.block_count", "num_hidden_layers", 4096, REQUIRED),                          \
        SIZE_KEY(n_cols, "%s.embedding_length", "hidden_size", 65536, REQUIRED),                        \
        SIZE_KEY(n_heads, "%s.attention.head_count", "num_attention_heads", 4096, REQUIRED),            \
        SIZE_KEY(n_kv_heads, "%s.attention.head_count_kv", "num_key_value_heads", 4096, REQUIRED,       \
                 PER_LAYER(n_kv_heads)),                                                                \
        SIZE_KEY(head_dim, "%s.attention.key_length", "head_dim", 1024, RATIO(n_cols, n_heads)),        \
        SIZE_KEY(n_vocab, "%s.vocab_size", "vocab_size", 1 << 24, FROM_EMBED),                          \
        SIZE_KEY(n_context, "%s.context_length", "max_position_embeddings", 1 << 24, DEFAULT(2048)),    \
        FLOAT_KEY(norm_eps, "%s.attention.layer_norm_rms_epsilon", "norm_eps", 1e-12, 1, REQUIRED),     \
        { CONFIG_AT(window), .gguf = "%s.attention.sliding_window", .max = 1 << 24, DEFAULT(0) },       \
    {                                                                                                   \
        CONFIG_OWN(struct lfm2_config, kernel), .gguf = "%s.shortconv.l_cache", .json = "conv_L_cache", \
                                                .min = 2, .max = CONV_MAX_KERNEL, REQUIRED              \
    }

#define LFM2_OWN(field, gguf_name, json_name, n_rows, n_cols, ...)                                         \
    {                                                                                                      \
        .per_layer = true, .place = OWN_PLACE(struct lfm2_weights, field), .gguf = gguf_name,              \
        .json = "model.layers.%u.conv." json_name, .rows = n_rows, .cols = n_cols, .layers = LAYERS_STATE, \
        __VA_ARGS__                                                                                        \
    }
#define LFM2_ATTENTION "model.layers.%u.self_attn."
#define LFM2_WEIGHTS                                                                                     \
    W(embed, "token_embd.weight", "model.embed_tokens.weight", VOCAB, COLS),                             \
        W(out_norm, "token_embd_norm.weight", "model.embedding_norm.weight", ONE, COLS),                 \
        W(head, "output.weight", "lm_head.weight", VOCAB, COLS, | WEIGHT_TIED),                          \
        L(attn_norm, "blk.%u.attn_norm.weight", "model.layers.%u.operator_norm.weight", ONE, COLS),      \
        L(q, "blk.%u.attn_q.weight", LFM2_ATTENTION "q_proj.weight", Q, COLS, IN_LAYERS(LAYERS_PAGES)),  \
        L(k, "blk.%u.attn_k.weight", LFM2_ATTENTION "k_proj.weight", KV, COLS, IN_LAYERS(LAYERS_PAGES)), \
        L(v, "blk.%u.attn_v.weight", LFM2_ATTENTION "v_proj.weight", KV, COLS, IN_LAYERS(LAYERS_PAGES)), \
        L(o, "blk.%u.attn_output.weight", LFM2_ATTENTION "out_proj.weight", COLS, Q,                     \
          IN_LAYERS(LAYERS_PAGES)),                                                                      \
        L(q_norm, "blk.%u.attn_q_norm.weight", LFM2_ATTENTION "q_layernorm.weight", ONE, HEAD,           \
          IN_LAYERS(LAYERS_PAGES)),                                                                      \
        L(k_norm, "blk.%u.attn_k_norm.weight", LFM2_ATTENTION "k_layernorm.weight", ONE, HEAD,           \
          IN_LAYERS(LAYERS_PAGES)),                                                                      \
        LFM2_OWN(conv, "blk.%u.shortconv.conv.weight", "conv.weight", DIM_COLS,                          \
                 OWN_DIM(struct lfm2_config, kernel), .flags = WEIGHT_DEPTHWISE),                        \
        LFM2_OWN(in, "blk.%u.shortconv.in_proj.weight", "in_proj.weight",                                \
                 OWN_DIM(struct lfm2_config, n_gates), DIM_COLS),                                        \
        LFM2_OWN(out, "blk.%u.shortconv.out_proj.weight", "out_proj.weight", DIM_COLS, DIM_COLS),        \
        L(ffn_norm, "blk.%u.ffn_norm.weight", "model.layers.%u.ffn_norm.weight", ONE, COLS)

#define LFM2_FFN "model.layers.%u.feed_forward."

static const struct config_key dense_config[] = {
    LFM2_CONFIG,
    SIZE_KEY(n_ffn, "%s.feed_forward_length", NULL, 1 << 20, REQUIRED),
};

static const struct weight_key dense_weights[] = {
    LFM2_WEIGHTS,
    L(gate, "blk.%u.ffn_gate.weight", LFM2_FFN "w1.weight", FFN, COLS),
    L(up, "blk.%u.ffn_up.weight", LFM2_FFN "w3.weight", FFN, COLS),
    L(down, "blk.%u.ffn_down.weight", LFM2_FFN "w2.weight", COLS, FFN),
};

// config.json has the length before it is rounded, by rules that changed.
static bool read_ffn(struct model *m, struct err *err)
{
    const struct file_tensor *t = model_file_tensor(m->file, "model.layers.0.feed_forward.w1.weight");

    if (m->config.n_ffn > 0)
        return true;
    if (!t || t->n_dims != 2 || t->dims[0] > 1 << 20)
        return err_set(err, ERR_INPUT,
                       "%s: tensor model.layers.0.feed_forward.w1.weight is %s; want [ffn, %u]",
                       model_file_path(m->file), t ? "misshapen" : "missing", m->config.n_cols);
    m->config.n_ffn = (uint32_t)t->dims[0];
    return true;
}

static bool complete(struct model *m, struct err *err)
{
    struct lfm2_config *c = m->own;

    c->n_gates = 3 * m->config.n_cols;
    return read_ffn(m, err);
}

// In an older checkpoint, which lists the numbers of the layers with attention.
static bool is_listed(const struct model *m, uint32_t l)
{
    const struct meta *numbers = model_file_meta(m->file, "full_attn_idxs");

    for (uint64_t i = 0; numbers && numbers->type == META_ARRAY && i < numbers->n; i++) {
        struct meta number = meta_at(numbers, i);
        if ((number.type == META_UINT || number.type == META_INT) && number.u == l)
            return true;
    }
    return false;
}

static bool layers(struct model *m, struct err *err)
{
    const struct lfm2_config *own = m->own;

    for (uint32_t l = 0; l < m->config.n_layers; l++) {
        struct layer_config *c = &m->layer_configs[l];
        bool gguf = model_file_format(m->file) == MODEL_GGUF;
        bool recurrent = gguf ? c->n_kv_heads == 0 : !is_listed(m, l);
        if (!gguf && !layer_config_recurrent(m, "layer_types", l, &recurrent, err))
            return false;
        c->n_kv_heads = m->config.n_kv_heads;
        c->state_words = recurrent ? conv_step_words(m->config.n_cols, own->kernel) : 0;
    }
    return true;
}

static void short_conv(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x)
{
    const struct lfm2_weights *w = stage_layer_own(s, l);
    uint32_t n = x.n_cols;
    struct tensor normed = tape_tensor(t, n, ROWS_STEP), gates = tape_tensor(t, 3 * n, ROWS_STEP),
                  mixed = tape_tensor(t, n, ROWS_STEP);

    tape_label(t, "layer%u.conv_in", l);
    op_rmsnorm(
        t, (struct rmsnorm){
               .out = normed, .in = x, .scale = stage_layer(s, l)->attn_norm, .eps = s->model->factors.eps });
    op_matmul(t, (struct matmul){ .out = gates, .in = normed, .w = w->in });
    tape_label(t, "layer%u.conv", l);
    op_conv_step(t, (struct conv_step){ .out = mixed,
                                        .in = gates,
                                        .w = w->conv,
                                        .states = s->states[l - s->first],
                                        .at = 2 * n,
                                        .factor_at = 0,
                                        .gate_at = n,
                                        .flags = CONV_FACTOR | CONV_GATE });
    tape_label(t, "layer%u.conv_out", l);
    op_matmul(t, (struct matmul){ .out = x, .in = mixed, .w = w->out, .add = x });
}

static void mix(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                struct tensor angles)
{
    if (stage_layer_config(s, l)->state_words > 0)
        short_conv(t, s, l, x);
    else
        block_attention(t, s, l, x, angles);
}

static uint64_t scratch_cols(const struct model *m)
{
    return 5ull * m->config.n_cols;
}

static void dense_layer(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                        struct tensor angles)
{
    mix(t, s, l, x, angles);
    block_gated_ffn(t, s, l, x, ACTIVATION_SILU);
}

const struct arch arch_lfm2 = { .name = "lfm2",
                                .model_types = "lfm2",
                                .activations = "silu swish",
                                ARCH_TABLES(dense_config, dense_weights),
                                ARCH_OWN(struct lfm2_config, struct lfm2_weights),
                                .complete = complete,
                                .layers = layers,
                                .scratch_cols = scratch_cols,
                                .layer = dense_layer };

// ---- with experts

static const struct config_key moe_config[] = {
    LFM2_CONFIG,
    SIZE_KEY(n_ffn, "%s.feed_forward_length", "intermediate_size", 1 << 20, REQUIRED),
    MIXTURE_CONFIG("num_experts"),
    MIXTURE_NORMALISE(1),
    { CONFIG_OWN(struct mixture_config, gating), .gguf = "%s.expert_gating_func", .max = GATING_SIGMOID,
      DEFAULT(GATING_SIGMOID) },
    { CONFIG_OWN(struct mixture_config, scale), .is_float = true, .gguf = "%s.expert_weights_scale",
      .json = "routed_scaling_factor", .max = 1e6, DEFAULT(1) },
    { CONFIG_AT(n_dense), .gguf = "%s.leading_dense_block_count", .json = "num_dense_layers", .max = 4096,
      DEFAULT(0) },
};

static const struct weight_key moe_weights[] = {
    LFM2_WEIGHTS,
    L(gate, "blk.%u.ffn_gate.weight", LFM2_FFN "w1.weight", FFN, COLS, IN_LAYERS(LAYERS_DENSE)),
    L(up, "blk.%u.ffn_up.weight", LFM2_FFN "w3.weight", FFN, COLS, IN_LAYERS(LAYERS_DENSE)),
    L(down, "blk.%u.ffn_down.weight", LFM2_FFN "w2.weight", COLS, FFN, IN_LAYERS(LAYERS_DENSE)),
    MIXTURE_WEIGHTS(LFM2_FFN "gate.weight", LFM2_FFN "experts.%u.w1.weight", LFM2_FFN "experts.%u.w3.weight",
                    LFM2_FFN "experts.%u.w2.weight"),
    MIXTURE_WEIGHT(select_bias, "blk.%u.exp_probs_b.bias", LFM2_FFN "expert_bias", DIM_ONE,
                   MIXTURE_DIM(n_experts)),
};

static bool moe_complete(struct model *m, struct err *err)
{
    struct lfm2_config *c = m->own;

    if (c->mixture.gating != GATING_SIGMOID)
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: expert_gating_func is %u; ingot runs lfm2moe models with %u",
                       model_file_path(m->file), c->mixture.gating, GATING_SIGMOID);
    c->mixture.n_groups = c->mixture.n_used_groups = 1;
    return complete(m, err);
}

static uint64_t moe_scratch_cols(const struct model *m)
{
    return scratch_cols(m) + mixture_scratch_cols(m);
}

static void moe_layer(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                      struct tensor angles)
{
    mix(t, s, l, x, angles);
    mixture_or_dense_block(t, s, l, x);
}

const struct arch arch_lfm2moe = { .name = "lfm2moe",
                                   .model_types = "lfm2_moe",
                                   .activations = "silu swish",
                                   ARCH_TABLES(moe_config, moe_weights),
                                   ARCH_OWN(struct lfm2_config, struct lfm2_weights),
                                   .complete = moe_complete,
                                   .layers = layers,
                                   .check = mixture_check,
                                   .scratch_cols = moe_scratch_cols,
                                   .layer = moe_layer,
                                   .experts = mixture_or_dense_block };
