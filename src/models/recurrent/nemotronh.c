// nemotronh.c - Nemotron-H and Nemotron 3 (NVIDIA, 2025): a layer is one half alone, behind one norm: Mamba2,
// GQA without any rotation, or a feed-forward block, which squares what is above 0 and has no gate. Dense, or
// with experts of that kind, chosen as DeepSeek V3 chooses.
//
// The square is ReLU(h) h, so that experts take one matrix for gate and up. Checkpoints name a layer's kind
// by a letter or a word, GGUF files by its KV heads and hidden numbers.
#include "models/recurrent/mamba.h"
#include "models/mixture.h"
#include "ops/activate/activate.h"
#include "ops/matmul/matmul.h"
#include "ops/rmsnorm/rmsnorm.h"

struct nemotron_config {
    struct mixture_config mixture; // first; 0 experts: the model is dense
    struct mamba_config mamba;
    uint32_t mamba_dim; // of a head; GGUF files have all heads' numbers
    uint32_t is_dense;
};

struct nemotron_weights {
    struct mixture_weights mixture; // first
    struct mamba_weights mamba;
};

#define NEMOTRON_SIZE(field, gguf_name, json_name, largest, ...)                                         \
    {                                                                                                    \
        CONFIG_OWN(struct nemotron_config, field), .gguf = gguf_name, .json = json_name, .max = largest, \
                                                   __VA_ARGS__                                           \
    }
#define NEMOTRON_MAMBA(...) MAMBA_SIZE(nemotron_config, __VA_ARGS__)

static const struct config_key config[] = {
    { CONFIG_AT(n_layers), .gguf = "%s.block_count", .json = "num_hidden_layers", .max = 4096, DEFAULT(0) },
    SIZE_KEY(n_cols, "%s.embedding_length", "hidden_size", 65536, REQUIRED),
    SIZE_KEY(n_heads, "%s.attention.head_count", "num_attention_heads", 4096, REQUIRED),
    SIZE_KEY(n_kv_heads, "%s.attention.head_count_kv", "num_key_value_heads", 4096, REQUIRED,
             PER_LAYER(n_kv_heads)),
    { CONFIG_AT(head_dim), .gguf = "%s.attention.key_length", .json = "head_dim", .max = 1024, DEFAULT(0) },
    SIZE_KEY(n_ffn, "%s.feed_forward_length", "intermediate_size", 1 << 20, REQUIRED, PER_LAYER(n_ffn)),
    SIZE_KEY(n_vocab, "%s.vocab_size", "vocab_size", 1 << 24, FROM_EMBED),
    SIZE_KEY(n_context, "%s.context_length", "max_position_embeddings", 1 << 24, DEFAULT(4096)),
    FLOAT_KEY(norm_eps, "%s.attention.layer_norm_rms_epsilon", "layer_norm_epsilon", 1e-12, 1, REQUIRED),
    NEMOTRON_MAMBA(n_heads, "%s.ssm.time_step_rank", "mamba_num_heads", 1, 4096, REQUIRED),
    NEMOTRON_MAMBA(d_state, "%s.ssm.state_size", "ssm_state_size", 1, SCAN_MAX_DIM, REQUIRED),
    NEMOTRON_MAMBA(n_groups, "%s.ssm.group_count", "n_groups", 1, 1024, REQUIRED),
    NEMOTRON_MAMBA(kernel, "%s.ssm.conv_kernel", "conv_kernel", 2, CONV_MAX_KERNEL, REQUIRED),
    NEMOTRON_MAMBA(inner, "%s.ssm.inner_size", NULL, 1, 1 << 20, REQUIRED),
    NEMOTRON_SIZE(mamba_dim, NULL, "mamba_head_dim", SCAN_MAX_DIM, .min = 1, REQUIRED),
    NEMOTRON_SIZE(mixture.n_experts, "%s.expert_count", "n_routed_experts", ROUTE_MAX_EXPERTS, DEFAULT(0)),
    NEMOTRON_SIZE(mixture.n_slots, "%s.expert_used_count", "num_experts_per_tok", ROUTE_MAX_SLOTS,
                  DEFAULT(0)),
    NEMOTRON_SIZE(mixture.n_ffn, "%s.expert_feed_forward_length", "moe_intermediate_size", 1 << 20,
                  DEFAULT(0)),
    NEMOTRON_SIZE(mixture.n_shared, "%s.expert_shared_feed_forward_length",
                  "moe_shared_expert_intermediate_size", 1 << 20, DEFAULT(0)),
    NEMOTRON_SIZE(mixture.n_groups, "%s.expert_group_count", "n_group", ROUTE_MAX_EXPERTS, .min = 1,
                  DEFAULT(1)),
    NEMOTRON_SIZE(mixture.n_used_groups, "%s.expert_group_used_count", "topk_group", ROUTE_MAX_EXPERTS,
                  .min = 1, DEFAULT(1)),
    NEMOTRON_SIZE(mixture.normalise, "%s.expert_weights_norm", "norm_topk_prob", 1, .is_bool = true,
                  DEFAULT(1)),
    NEMOTRON_SIZE(mixture.scale, "%s.expert_weights_scale", "routed_scaling_factor", 1e6, .is_float = true,
                  DEFAULT(1)),
};

#define LAYER "backbone.layers.%u."
#define MIXER LAYER "mixer."
#define ATTENTION(field, gguf_name, json_name, n_rows, n_cols)                         \
    L(field, "blk.%u." gguf_name ".weight", MIXER json_name ".weight", n_rows, n_cols, \
      IN_LAYERS(LAYERS_PAGES))
// The one norm of a layer.
#define NORM(field, which) \
    L(field, "blk.%u.attn_norm.weight", LAYER "norm.weight", ONE, COLS, IN_LAYERS(which))
#define DENSE(field, gguf_name, json_name, n_rows, n_cols)                                        \
    {                                                                                             \
        .per_layer = true, .place = offsetof(struct layer_weights, field) / sizeof(void *),       \
        .gguf = "blk.%u." gguf_name ".weight", .json = MIXER json_name ".weight", .rows = n_rows, \
        .cols = n_cols, .layers = LAYERS_FFN, .when = OWN_DIM(struct nemotron_config, is_dense)   \
    }
#define EXPERTS(field, gguf_name, json_name, n_rows, n_cols, ...)                                          \
    {                                                                                                      \
        .per_layer = true, .place = OWN_PLACE(struct mixture_weights, field), .gguf = "blk.%u." gguf_name, \
        .json = MIXER json_name, .rows = n_rows, .cols = n_cols, .layers = LAYERS_FFN, __VA_ARGS__         \
    }
#define OF_MIXTURE .when = MIXTURE_DIM(n_experts)
#define OF_SHARED  .when = MIXTURE_DIM(n_shared)

static const struct weight_key weights[] = {
    W(embed, "token_embd.weight", "backbone.embeddings.weight", VOCAB, COLS),
    W(out_norm, "output_norm.weight", "backbone.norm_f.weight", ONE, COLS),
    W(head, "output.weight", "lm_head.weight", VOCAB, COLS, | WEIGHT_TIED),
    NORM(attn_norm, LAYERS_PAGES),
    NORM(attn_norm, LAYERS_STATE),
    NORM(ffn_norm, LAYERS_FFN),
    ATTENTION(q, "attn_q", "q_proj", Q, COLS),
    ATTENTION(k, "attn_k", "k_proj", KV, COLS),
    ATTENTION(v, "attn_v", "v_proj", KV, COLS),
    ATTENTION(o, "attn_output", "o_proj", COLS, Q),
    MAMBA_WEIGHTS(nemotron_config, nemotron_weights, MIXER),
    DENSE(up, "ffn_up", "up_proj", DIM_FFN, DIM_COLS),
    DENSE(down, "ffn_down", "down_proj", DIM_COLS, DIM_FFN),
    EXPERTS(router, "ffn_gate_inp.weight", "gate.weight", MIXTURE_DIM(n_experts), DIM_COLS, OF_MIXTURE),
    EXPERTS(select_bias, "exp_probs_b.bias", "gate.e_score_correction_bias", DIM_ONE, MIXTURE_DIM(n_experts),
            OF_MIXTURE),
    EXPERTS(up, "ffn_up_exps.weight", "experts.%u.up_proj.weight", MIXTURE_DIM(n_ffn), DIM_COLS,
            MIXTURE_STACK, OF_MIXTURE),
    EXPERTS(down, "ffn_down_exps.weight", "experts.%u.down_proj.weight", DIM_COLS, MIXTURE_DIM(n_ffn),
            MIXTURE_STACK, OF_MIXTURE),
    EXPERTS(shared_up, "ffn_up_shexp.weight", "shared_experts.up_proj.weight", MIXTURE_DIM(n_shared),
            DIM_COLS, OF_SHARED),
    EXPERTS(shared_down, "ffn_down_shexp.weight", "shared_experts.down_proj.weight", DIM_COLS,
            MIXTURE_DIM(n_shared), OF_SHARED),
};

static bool is_gguf(const struct model *m)
{
    return model_file_format(m->file) == MODEL_GGUF;
}

enum nemotron_kind { MAMBA, ATTENTION_ALONE, DENSE_FFN, MIXTURE, N_KINDS };

static enum nemotron_kind nemotron_kind_of(struct str word)
{
    static const char *const words[N_KINDS] = { "M mamba linear_attention", "* attention full_attention",
                                                "- mlp", "E moe" };
    enum nemotron_kind kind = MAMBA;

    while (kind < N_KINDS && !model_one_of(words[kind], word))
        kind++;
    return kind;
}

// config.json's list of the layers' kinds: a letter or a word each; or NULL.
static const struct meta *find_kinds(const struct model *m, uint64_t *n)
{
    static const char *const keys[] = { "hybrid_override_pattern", "layers_block_type", "layer_types" };
    const struct meta *kinds = NULL;

    for (size_t i = 0; !kinds && i < sizeof keys / sizeof *keys; i++)
        kinds = model_file_meta(m->file, keys[i]);
    bool known = kinds && (kinds->type == META_STRING || kinds->type == META_ARRAY);
    *n = !known ? 0 : kinds->type == META_STRING ? kinds->s.n : kinds->n;
    return known ? kinds : NULL;
}

static bool activation_is(const struct model *m, const char *key, const char *name, struct err *err)
{
    struct str found = str_from(name);

    return model_file_string(m->file, key, &found, err) &&
           (str_is(found, name) ||
            err_set(err, ERR_UNSUPPORTED, "%s: %s is \"%.*s\"; ingot runs %s models with %s",
                    model_file_path(m->file), key, STR_ARG(found), m->arch->name, name));
}

static bool lacks_all(const struct model *m, struct err *err)
{
    static const char *const keys[] = { "moe_latent_size", "nemotron_h_moe.moe_latent_size",
                                        "use_bias",        "mamba_proj_bias",
                                        "mlp_bias",        "attention_bias" };

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!model_lacks(m, keys[i], err))
            return false;
    return activation_is(m, "mlp_hidden_act", "relu2", err) &&
           activation_is(m, "mamba_hidden_act", "silu", err);
}

// Steps that are clamped: from 0 to infinity is no clamp.
static bool check_steps(const struct model *m, struct err *err)
{
    const struct meta *limit = model_file_meta(m->file, "time_step_limit");

    for (uint64_t i = 0; limit && limit->type == META_ARRAY && i < limit->n; i++) {
        struct meta n = meta_at(limit, i);
        double v = n.type == META_FLOAT ? n.f : n.type == META_UINT ? (double)n.u : 0;
        if (i == 0 ? v > 0 : v < 1e30)
            return err_set(err, ERR_UNSUPPORTED,
                           "%s: time_step_limit[%llu] is %g; ingot runs %s models whose steps have no limit",
                           model_file_path(m->file), (unsigned long long)i, v, m->arch->name);
    }
    return true;
}

static bool complete(struct model *m, struct err *err)
{
    struct nemotron_config *c = m->own;
    uint64_t n = 0, dim = m->config.head_dim;

    if (!is_gguf(m) && !find_kinds(m, &n))
        return err_set(err, ERR_INPUT, "%s: hybrid_override_pattern is missing; %s models need it",
                       model_file_path(m->file), m->arch->name);
    if (m->config.n_layers == 0)
        m->config.n_layers = n <= 4096 ? (uint32_t)n : 0;
    if (m->config.n_layers == 0)
        return err_set(err, ERR_INPUT, "%s: the number of layers is missing", model_file_path(m->file));
    if (dim == 0 && !model_file_u64(m->file, "attention_head_dim", 1, 1024, &dim, err))
        return false;
    m->config.head_dim = (uint32_t)dim; // layer_config.c refuses 0
    c->mamba.inner = is_gguf(m) ? c->mamba.inner : c->mamba.n_heads * c->mamba_dim;
    c->mixture.activation = ACTIVATION_RELU;
    c->mixture.gating = GATING_SIGMOID;
    c->mixture.biased = 1;
    return lacks_all(m, err) && check_steps(m, err) && mamba_complete(m, &c->mamba, err);
}

static bool read_kind(const struct model *m, uint32_t l, enum nemotron_kind *kind, struct err *err)
{
    const struct layer_config *c = &m->layer_configs[l];
    const struct nemotron_config *own = m->own;
    uint64_t n = 0;
    const struct meta *kinds = is_gguf(m) ? NULL : find_kinds(m, &n);

    if (!kinds) {
        *kind = c->n_ffn > 0         ? own->mixture.n_experts ? MIXTURE : DENSE_FFN
                : c->n_kv_heads == 0 ? MAMBA
                                     : ATTENTION_ALONE;
        return true;
    }
    if (n != m->config.n_layers)
        return err_set(err, ERR_INPUT, "%s: the kinds of %llu layers are listed; want %u",
                       model_file_path(m->file), (unsigned long long)n, m->config.n_layers);
    struct meta word = kinds->type == META_ARRAY
                           ? meta_at(kinds, l)
                           : (struct meta){ .type = META_STRING, .s = str_from_to(kinds->s, l, l + 1) };
    *kind = word.type == META_STRING ? nemotron_kind_of(word.s) : N_KINDS;
    return *kind < N_KINDS || err_set(err, ERR_UNSUPPORTED,
                                      "%s: layer %u is of no kind that ingot knows: Mamba, attention, MLP "
                                      "or experts",
                                      model_file_path(m->file), l);
}

static bool layers(struct model *m, struct err *err)
{
    struct nemotron_config *own = m->own;
    uint32_t n[N_KINDS] = { 0 };

    for (uint32_t l = 0; l < m->config.n_layers; l++) {
        struct layer_config *c = &m->layer_configs[l];
        enum nemotron_kind kind = MAMBA;
        if (!read_kind(m, l, &kind, err))
            return false;
        n[kind]++;
        c->n_kv_heads = m->config.n_kv_heads;
        c->n_ffn = m->config.n_ffn;
        c->state_words = kind == MAMBA ? mamba_state_words(&own->mamba) : 0;
        c->ffn_alone = kind == DENSE_FFN || kind == MIXTURE;
    }
    if (n[ATTENTION_ALONE] == 0 || (n[DENSE_FFN] > 0 && n[MIXTURE] > 0))
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: %u layers of attention, %u dense, %u of experts; want attention, and one of the "
                       "other two",
                       model_file_path(m->file), n[ATTENTION_ALONE], n[DENSE_FFN], n[MIXTURE]);
    own->is_dense = n[MIXTURE] == 0;
    if (own->is_dense)
        own->mixture.n_experts = own->mixture.n_shared = 0;
    return true;
}

static bool check(const struct model *m, struct err *err)
{
    const struct nemotron_config *c = m->own;

    if (!c->is_dense && (c->mixture.n_slots == 0 || c->mixture.n_ffn == 0 || c->mixture.n_experts == 0))
        return err_set(err, ERR_INPUT,
                       "%s: %u experts, but %u for a token, of %u hidden numbers; want 1 or more",
                       model_file_path(m->file), c->mixture.n_experts, c->mixture.n_slots, c->mixture.n_ffn);
    return c->is_dense || mixture_check(m, err);
}

static void factors(struct model *m)
{
    m->config.rope[0].type = ROPE_NONE;
}

// x += (ReLU(h) h) Wdown^T, h = norm(x) Wup^T
static void dense(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x)
{
    const struct layer_weights *w = stage_layer(s, l);
    struct tensor in = tape_tensor(t, x.n_cols, ROWS_STEP),
                  hidden = tape_tensor(t, stage_layer_config(s, l)->n_ffn, ROWS_STEP);

    tape_label(t, "layer%u.up", l);
    op_rmsnorm(t, (struct rmsnorm){ .out = in, .in = x, .scale = w->ffn_norm, .eps = s->model->factors.eps });
    op_matmul(t, (struct matmul){ .out = hidden, .in = in, .w = w->up });
    op_activate(
        t, (struct activate){ .out = hidden, .gate = hidden, .up = hidden, .activation = ACTIVATION_RELU });
    tape_label(t, "layer%u.ffn_out", l);
    op_matmul(t, (struct matmul){ .out = x, .in = hidden, .w = w->down, .add = x });
}

static uint64_t scratch_cols(const struct model *m)
{
    const struct nemotron_config *c = m->own;
    return mamba_scratch_cols(m, &c->mamba) + (c->is_dense ? 0 : mixture_scratch_cols(m));
}

static void layer(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                  struct tensor angles)
{
    const struct nemotron_config *c = s->model->own;
    const struct nemotron_weights *w = stage_layer_own(s, l);

    if (stage_layer_config(s, l)->state_words > 0)
        mamba_block(t, s, l, x, &c->mamba, &w->mamba);
    else if (!stage_layer_config(s, l)->ffn_alone)
        block_attention(t, s, l, x, angles);
    else if (c->is_dense)
        dense(t, s, l, x);
    else
        mixture_block(t, s, l, x, mixture_rule(s->model));
}

// GGUF names the two kinds apart; in a checkpoint the layers tell.
#define NEMOTRON(gguf_name, types)                                                                        \
    {                                                                                                     \
        .name = gguf_name, .model_types = types, .gguf_differs = true, .activations = "relu2 silu swish", \
        ARCH_TABLES(config, weights), ARCH_OWN(struct nemotron_config, struct nemotron_weights),          \
        .complete = complete, .layers = layers, .check = check, .factors = factors,                       \
        .scratch_cols = scratch_cols, .layer = layer                                                      \
    }
const struct arch arch_nemotronh = NEMOTRON("nemotron_h", "nemotron_h");
const struct arch arch_nemotronhmoe = NEMOTRON("nemotron_h_moe", "nemotron_h_moe");
