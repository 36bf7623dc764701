// gemma4.c - Gemma 4 (Gemma team, 2026), its text: Gemma 3's layer with plain norms, scores that are not
// scaled, and values normalised head by head.
//
// Layers that see all have wider heads, and may have no projection of values: these are the keys before their
// norm. The last layers of small models read the K and V of the last layer of their kind that has its own.
// Small models also give every layer a vector of each token (per-layer embeddings). A layer ends with a
// factor. 26B-A4B has experts beside the feed-forward block: both read the stream, each through norms of its
// own, and what they add is normalised together.
#include <math.h>
#include "models/binding/layer_config.h"
#include "models/binding/model_names.h"
#include "models/mixture.h"
#include "ops/activate/activate.h"
#include "ops/embed/embed.h"
#include "ops/gate_up/gate_up.h"
#include "ops/matmul/matmul.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rmsnorm_sum/rmsnorm_sum.h"

struct gemma4_config {
    struct mixture_config mixture;   // first; 0 experts: the model has none
    uint32_t period;                 // every so many layers one sees all
    uint32_t head_dim;               // of layers with the window
    uint32_t n_kv_heads;             // of layers that see all, where config.json says it
    uint32_t same_values;            // layers that see all have no projection of values
    uint32_t wide;                   // layers without K and V have twice the hidden numbers
    uint32_t n_shared;               // the last layers, which have no K and V
    uint32_t n_inputs, n_all_inputs; // of a token's vector for a layer, and for all of them
    float cap;                       // of the logits
    uint32_t has_experts;            // as config.json says it
};

struct gemma4_weights {             // all pointers
    struct mixture_weights mixture; // first
    const struct weight *input_gate, *input_proj, *input_norm, *factor;
    const struct weight *router_norm, *expert_scale, *expert_norm;
    const struct weight *dense_out_norm, *expert_out_norm;
};

#define OWN_SIZE(field, gguf_name, json_name, largest, ...)                                            \
    {                                                                                                  \
        CONFIG_OWN(struct gemma4_config, field), .gguf = gguf_name, .json = json_name, .max = largest, \
                                                 __VA_ARGS__                                           \
    }

static const struct config_key config[] = {
    SIZE_KEY(n_layers, "%s.block_count", "num_hidden_layers", 4096, REQUIRED),
    SIZE_KEY(n_cols, "%s.embedding_length", "hidden_size", 65536, REQUIRED),
    SIZE_KEY(n_heads, "%s.attention.head_count", "num_attention_heads", 4096, REQUIRED),
    SIZE_KEY(n_kv_heads, "%s.attention.head_count_kv", "num_key_value_heads", 4096, REQUIRED,
             PER_LAYER(n_kv_heads)),
    SIZE_KEY(head_dim, "%s.attention.key_length", "global_head_dim", 1024, REQUIRED),
    SIZE_KEY(n_ffn, "%s.feed_forward_length", "intermediate_size", 1 << 20, REQUIRED, PER_LAYER(n_ffn)),
    SIZE_KEY(n_vocab, "%s.vocab_size", "vocab_size", 1 << 24, FROM_EMBED),
    SIZE_KEY(n_context, "%s.context_length", "max_position_embeddings", 1 << 24, DEFAULT(131072)),
    FLOAT_KEY(norm_eps, "%s.attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-12, 1, DEFAULT(1e-6)),
    SIZE_KEY(window, "%s.attention.sliding_window", "sliding_window", 1 << 24, REQUIRED),
    FLOAT_KEY(rope[1].base, "%s.rope.freq_base_swa", "rope_parameters.sliding_attention.rope_theta", 1, 1e12,
              DEFAULT(1e4)),
    OWN_SIZE(period, "%s.attention.sliding_window_pattern", "sliding_window_pattern", 4097, .min = 1,
             .is_period = true, DEFAULT(6)),
    OWN_SIZE(head_dim, "%s.attention.key_length_swa", "head_dim", 1024, .min = 2, REQUIRED),
    OWN_SIZE(n_kv_heads, NULL, "num_global_key_value_heads", 4096, DEFAULT(0)),
    OWN_SIZE(same_values, NULL, "attention_k_eq_v", 1, .is_bool = true, DEFAULT(0)),
    OWN_SIZE(wide, NULL, "use_double_wide_mlp", 1, .is_bool = true, DEFAULT(0)),
    OWN_SIZE(n_shared, "%s.attention.shared_kv_layers", "num_kv_shared_layers", 4096, DEFAULT(0)),
    OWN_SIZE(n_inputs, "%s.embedding_length_per_layer_input", "hidden_size_per_layer_input", 4096,
             DEFAULT(0)),
    OWN_SIZE(cap, "%s.final_logit_softcapping", "final_logit_softcapping", 1e6, .is_float = true, DEFAULT(0)),
    OWN_SIZE(mixture.n_experts, "%s.expert_count", "num_experts", ROUTE_MAX_EXPERTS, DEFAULT(0)),
    OWN_SIZE(mixture.n_slots, "%s.expert_used_count", "top_k_experts", ROUTE_MAX_SLOTS, DEFAULT(0)),
    OWN_SIZE(mixture.n_ffn, "%s.expert_feed_forward_length", "moe_intermediate_size", 1 << 20, DEFAULT(0)),
    OWN_SIZE(has_experts, NULL, "enable_moe_block", 1, .is_bool = true, DEFAULT(1)),
};

#define LAYER "model.layers.%u."
#define NORM(field, gguf_name, json_name, n_cols) \
    L(field, "blk.%u." gguf_name ".weight", LAYER json_name ".weight", ONE, n_cols)
#define GLOBAL(field, gguf_name, json_name, n_rows, n_cols)                                         \
    {                                                                                               \
        .place = MODEL_PLACE(field), .gguf = gguf_name, .json = "model." json_name, .rows = n_rows, \
        .cols = n_cols, .when = OWN_DIM(struct gemma4_config, n_inputs)                             \
    }
#define OWN(field, gguf_name, json_name, n_rows, n_cols, ...)                                             \
    {                                                                                                     \
        .per_layer = true, .place = OWN_PLACE(struct gemma4_weights, field), .gguf = "blk.%u." gguf_name, \
        .json = LAYER json_name, .rows = n_rows, .cols = n_cols, __VA_ARGS__                              \
    }
// The feed-forward half goes where its experts go.
#define FFN_WEIGHT(field, gguf_name, json_name, n_rows, n_cols)                        \
    L(field, "blk.%u." gguf_name ".weight", LAYER json_name ".weight", n_rows, n_cols, \
      IN_LAYERS(LAYERS_MIXTURE))
#define OF_EXPERTS .when = MIXTURE_DIM(n_experts)
#define EXPERTS_OWN(field, gguf_name, json_name, n_cols) \
    OWN(field, gguf_name, json_name, DIM_ONE, n_cols, OF_EXPERTS, .layers = LAYERS_MIXTURE)
#define KV_WEIGHT(field, gguf_name, json_name, n_rows, n_cols, flags)                                      \
    L(field, "blk.%u." gguf_name ".weight", LAYER "self_attn." json_name ".weight", n_rows, n_cols, flags, \
      .layers = LAYERS_OWN_KV)

#define FACTOR_KEY \
    OWN(factor, "layer_output_scale.weight", "layer_scalar", DIM_ONE, DIM_ONE, .flags = WEIGHT_OPTIONAL)
#define V_KEY KV_WEIGHT(v, "attn_v", "v_proj", KV, COLS, | WEIGHT_OPTIONAL)

static const struct weight_key weights[] = {
    W(embed, "token_embd.weight", "model.embed_tokens.weight", VOCAB, COLS),
    W(out_norm, "output_norm.weight", "model.norm.weight", ONE, COLS),
    W(head, "output.weight", NULL, VOCAB, COLS, | WEIGHT_TIED), // a checkpoint's lm_head is the embedding
    W(rope_divisors, "rope_freqs.weight", NULL, ONE, PAIRS, | WEIGHT_OPTIONAL),
    GLOBAL(input_embed, "per_layer_token_embd.weight", "embed_tokens_per_layer.weight", DIM_VOCAB,
           OWN_DIM(struct gemma4_config, n_all_inputs)),
    GLOBAL(input_proj, "per_layer_model_proj.weight", "per_layer_model_projection.weight",
           OWN_DIM(struct gemma4_config, n_all_inputs), DIM_COLS),
    GLOBAL(input_norm, "per_layer_proj_norm.weight", "per_layer_projection_norm.weight", DIM_ONE,
           OWN_DIM(struct gemma4_config, n_inputs)),
    NORM(attn_norm, "attn_norm", "input_layernorm", COLS),
    L(q, "blk.%u.attn_q.weight", LAYER "self_attn.q_proj.weight", Q, COLS),
    KV_WEIGHT(k, "attn_k", "k_proj", KV, COLS, | 0),
    V_KEY,
    NORM(q_norm, "attn_q_norm", "self_attn.q_norm", HEAD),
    KV_WEIGHT(k_norm, "attn_k_norm", "k_norm", ONE, HEAD, | 0),
    L(o, "blk.%u.attn_output.weight", LAYER "self_attn.o_proj.weight", COLS, Q),
    NORM(attn_out_norm, "post_attention_norm", "post_attention_layernorm", COLS),
    NORM(ffn_norm, "ffn_norm", "pre_feedforward_layernorm", COLS),
    FFN_WEIGHT(gate, "ffn_gate", "mlp.gate_proj", FFN, COLS),
    FFN_WEIGHT(up, "ffn_up", "mlp.up_proj", FFN, COLS),
    FFN_WEIGHT(down, "ffn_down", "mlp.down_proj", COLS, FFN),
    FFN_WEIGHT(ffn_out_norm, "post_ffw_norm", "post_feedforward_layernorm", ONE, COLS),
    MIXTURE_WEIGHT(router, "blk.%u.ffn_gate_inp.weight", LAYER "router.proj.weight", MIXTURE_DIM(n_experts),
                   DIM_COLS, OF_EXPERTS),
    MIXTURE_WEIGHT(gate, "blk.%u.ffn_gate_exps.weight", LAYER "experts.gate_up_proj", MIXTURE_DIM(n_ffn),
                   DIM_COLS, MIXTURE_STACK, OF_EXPERTS, .half = 1),
    MIXTURE_WEIGHT(up, "blk.%u.ffn_up_exps.weight", LAYER "experts.gate_up_proj", MIXTURE_DIM(n_ffn),
                   DIM_COLS, MIXTURE_STACK, OF_EXPERTS, .half = 2),
    MIXTURE_WEIGHT(down, "blk.%u.ffn_down_exps.weight", LAYER "experts.down_proj", DIM_COLS,
                   MIXTURE_DIM(n_ffn), MIXTURE_STACK, OF_EXPERTS),
    EXPERTS_OWN(router_norm, "ffn_gate_inp.scale", "router.scale", DIM_COLS),
    EXPERTS_OWN(expert_scale, "ffn_down_exps.scale", "router.per_expert_scale", MIXTURE_DIM(n_experts)),
    EXPERTS_OWN(expert_norm, "pre_ffw_norm_2.weight", "pre_feedforward_layernorm_2.weight", DIM_COLS),
    EXPERTS_OWN(dense_out_norm, "post_ffw_norm_1.weight", "post_feedforward_layernorm_1.weight", DIM_COLS),
    EXPERTS_OWN(expert_out_norm, "post_ffw_norm_2.weight", "post_feedforward_layernorm_2.weight", DIM_COLS),
    OWN(input_gate, "inp_gate.weight", "per_layer_input_gate.weight", OWN_DIM(struct gemma4_config, n_inputs),
        DIM_COLS, .when = OWN_DIM(struct gemma4_config, n_inputs)),
    OWN(input_proj, "proj.weight", "per_layer_projection.weight", DIM_COLS,
        OWN_DIM(struct gemma4_config, n_inputs), .when = OWN_DIM(struct gemma4_config, n_inputs)),
    OWN(input_norm, "post_norm.weight", "post_per_layer_input_norm.weight", DIM_ONE, DIM_COLS,
        .when = OWN_DIM(struct gemma4_config, n_inputs)),
    FACTOR_KEY,
};

static bool complete(struct model *m, struct err *err)
{
    struct gemma4_config *c = m->own;

    c->n_all_inputs = c->n_inputs * m->config.n_layers;
    m->config.n_inputs = c->n_all_inputs;
    if (!c->has_experts || c->mixture.n_experts == 0)
        c->mixture = (struct mixture_config){ 0 };
    c->mixture.normalise = 1;
    c->mixture.activation = ACTIVATION_GELU_TANH;
    if (c->mixture.n_experts > 0 && (c->mixture.n_slots == 0 || c->mixture.n_ffn == 0))
        return err_set(err, ERR_INPUT,
                       "%s: %u experts, but %u for a token, of %u hidden numbers; want 1 or more",
                       model_file_path(m->file), c->mixture.n_experts, c->mixture.n_slots, c->mixture.n_ffn);
    return layer_config_types(m, &c->period, err);
}

// The last layer before the shared ones that is of the same kind, or err.
static bool find_pages(struct model *m, uint32_t l, struct err *err)
{
    const struct gemma4_config *c = m->own;
    struct layer_config *all = m->layer_configs;

    for (uint32_t from = m->config.n_layers - c->n_shared; from-- > 0;)
        if (all[from].rope == all[l].rope) {
            all[l].pages_of = from;
            all[l].n_kv_heads = all[from].n_kv_heads;
            return true;
        }
    return err_set(err, ERR_INPUT,
                   "%s: layer %u shares K and V, but none of its kind before layer %u has its own",
                   model_file_path(m->file), l, m->config.n_layers - c->n_shared);
}

static float factor_of(const struct model *m, uint32_t l)
{
    static const struct weight_key key = FACTOR_KEY;
    char name[128];
    const struct file_tensor *t = model_names_find(m, &key, l, name);
    float factor = 1;

    if (t && t->n_dims == 1 && t->dims[0] == 1 && quant_info(t->format)->block_elements == 1)
        quant_info(t->format)->decode(t->data, &factor, 1);
    return factor;
}

static bool layers(struct model *m, struct err *err)
{
    const struct gemma4_config *c = m->own;
    uint32_t n = m->config.n_layers;
    bool ok = c->n_shared < n || err_set(err, ERR_INPUT, "%s: %u of %u layers share K and V; want fewer",
                                         model_file_path(m->file), c->n_shared, n);

    m->config.rope[1].n_dims = c->head_dim;
    layer_config_windows(m, c->period, 1);
    for (uint32_t l = 0; ok && l < n; l++) {
        struct layer_config *here = &m->layer_configs[l];
        bool shared = l >= n - c->n_shared, all = here->rope == 0;
        here->head_dim = all ? here->head_dim : c->head_dim;
        here->n_kv_heads = all && c->same_values && c->n_kv_heads ? c->n_kv_heads : here->n_kv_heads;
        here->n_ffn *= shared && c->wide ? 2 : 1;
        here->gain = factor_of(m, l);
        ok = !shared || find_pages(m, l, err);
    }
    return ok;
}

// Heads with the window are rotated as a whole, and their values are as long as the keys.
static bool check_window_heads(const struct model *m, const char *key, struct err *err)
{
    const struct gemma4_config *c = m->own;
    uint64_t said = c->head_dim;

    return model_file_u64(m->file, key, 1, UINT32_MAX, &said, err) &&
           (said == c->head_dim ||
            err_set(err, ERR_UNSUPPORTED, "%s: %s is %llu; heads with the window have %u numbers",
                    model_file_path(m->file), key, (unsigned long long)said, c->head_dim));
}

static bool check_words(const struct model *m, struct err *err)
{
    const struct meta *both = model_file_meta(m->file, "use_bidirectional_attention");

    if (both && both->type == META_STRING && str_is(both->s, "all")) // "vision": pictures alone
        return err_set(
            err, ERR_UNSUPPORTED,
            "%s: use_bidirectional_attention is \"all\"; ingot runs %s models that see what is before alone",
            model_file_path(m->file), m->arch->name);
    if (model_file_format(m->file) == MODEL_GGUF && !model_file_tensor(m->file, "rope_freqs.weight"))
        return err_set(err, ERR_INPUT,
                       "%s: tensor rope_freqs.weight is missing; layers that see all rotate by it",
                       model_file_path(m->file));
    return check_window_heads(m, "gemma4.attention.value_length_swa", err) &&
           check_window_heads(m, "gemma4.rope.dimension_count_swa", err) &&
           model_lacks(m, "attn_logit_softcapping", err) &&
           model_lacks(m, "gemma4.attn_logit_softcapping", err) &&
           model_lacks(m, "rope_parameters.sliding_attention.factor", err);
}

// Values must be there but where they are the keys.
static bool check(const struct model *m, struct err *err)
{
    static const struct weight_key key = V_KEY;
    char name[128];

    for (uint32_t l = 0; l < m->config.n_layers; l++) {
        const struct layer_config *here = &m->layer_configs[l];
        if (here->pages_of == l && here->rope == 1 && !model_names_find(m, &key, l, name))
            return err_set(err, ERR_INPUT, "%s: tensor %s is missing; layers with the window need it",
                           model_file_path(m->file), name);
    }
    return check_words(m, err) && mixture_check(m, err);
}

static void factors(struct model *m)
{
    const struct gemma4_config *c = m->own;

    m->factors.embed = sqrtf((float)m->config.n_cols);
    m->factors.attend = 1;
    m->factors.cap = c->cap;
}

// Every token's vectors for all layers: its own and a projection of its embedding, which is divided by the
// root of the width before the norm.
static void inputs(struct tape *t, const struct model_stage *s, struct tensor x)
{
    const struct gemma4_config *c = s->model->own;
    struct tensor own = tape_tensor(t, c->n_all_inputs, ROWS_STEP),
                  projected = tape_tensor(t, c->n_all_inputs, ROWS_STEP);

    op_embed(t, (struct embed){ .out = own,
                                .table = s->weights.input_embed,
                                .history = s->history,
                                .history_stride = s->history_stride,
                                .scale = sqrtf((float)c->n_inputs) });
    op_matmul(t, (struct matmul){ .out = projected, .in = x, .w = s->weights.input_proj });
    op_rmsnorm(t, (struct rmsnorm){ .out = tape_tensor_bound(t, c->n_all_inputs, ROWS_STEP, s->inputs),
                                    .in = projected,
                                    .scale = s->weights.input_norm,
                                    .add = own,
                                    .n_groups = s->model->config.n_layers,
                                    .eps = s->model->factors.eps * (float)x.n_cols,
                                    .gain = sqrtf(0.5f) });
}

// x = (x + N(f(x Wgate^T) * the layer's part of the inputs) Wproj^T)) * gain
static void add_input(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x)
{
    const struct gemma4_config *c = s->model->own;
    const struct gemma4_weights *w = stage_layer_own(s, l);
    struct tensor gate = tape_tensor(t, c->n_inputs, ROWS_STEP), out = tape_tensor(t, x.n_cols, ROWS_STEP);

    tape_label(t, "layer%u.input", l);
    op_matmul(t, (struct matmul){ .out = gate, .in = x, .w = w->input_gate });
    op_activate(t, (struct activate){ .out = gate,
                                      .gate = gate,
                                      .up = tape_tensor_bound(t, c->n_all_inputs, ROWS_STEP, s->inputs),
                                      .up_first = l * c->n_inputs,
                                      .activation = ACTIVATION_GELU_TANH });
    op_matmul(t, (struct matmul){ .out = out, .in = gate, .w = w->input_proj });
    op_rmsnorm(t, (struct rmsnorm){ .out = x,
                                    .in = out,
                                    .scale = w->input_norm,
                                    .add = x,
                                    .eps = s->model->factors.eps,
                                    .gain = stage_layer_config(s, l)->gain });
}

// The dense block's part of the sum; with ranks it is normalised, and *norm becomes NULL.
static struct tensor dense_part(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                                const struct weight **norm)
{
    const struct layer_weights *w = stage_layer(s, l);
    struct tensor hidden = tape_tensor(t, stage_layer_config(s, l)->n_ffn, ROWS_STEP),
                  sum = block_rank_tensor(t, s, x.n_cols), out = sum;

    tape_label(t, "layer%u.gate_up", l);
    op_gate_up(t, (struct gate_up){ .out = hidden,
                                    .in = x,
                                    .norm = w->ffn_norm,
                                    .gate = w->gate,
                                    .up = w->up,
                                    .activation = ACTIVATION_GELU_TANH,
                                    .eps = s->model->factors.eps });
    tape_label(t, "layer%u.ffn_out", l);
    op_matmul(t, (struct matmul){ .out = sum, .in = hidden, .w = w->down });
    block_rank_sum(t, s, sum);
    if (s->model->n_ranks) { // the experts' sum comes to the same place
        out = tape_tensor(t, x.n_cols, ROWS_STEP);
        op_rmsnorm(t,
                   (struct rmsnorm){ .out = out, .in = sum, .scale = *norm, .eps = s->model->factors.eps });
        *norm = NULL;
    }
    return out;
}

// x = (x + N(N1(dense(x)) + N2(experts(x)))) * gain
static void dense_and_experts(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x)
{
    const struct gemma4_weights *w = stage_layer_own(s, l);
    float eps = s->model->factors.eps;
    const struct weight *dense_norm = w->dense_out_norm;
    struct tensor dense = dense_part(t, s, l, x, &dense_norm);

    struct tensor sum = mixture_sum(
        t, s, l, x,
        &(struct mixture_router){ .rule = { ROUTE_SOFTMAX, .n_groups = 1, .n_used_groups = 1, .scale = 1 },
                                  .norm = w->router_norm,
                                  .expert_scale = w->expert_scale,
                                  .gain = 1 / sqrtf((float)x.n_cols),
                                  .expert_norm = w->expert_norm });
    tape_label(t, "layer%u.experts_out", l);
    op_rmsnorm_sum(
        t, (struct rmsnorm_sum){ .out = x,
                                 .a = sum,
                                 .a_scale = w->expert_out_norm,
                                 .b = dense,
                                 .b_scale = dense_norm,
                                 .scale = stage_layer(s, l)->ffn_out_norm,
                                 .add = x,
                                 .eps = eps,
                                 .gain = s->model->config.n_inputs ? 1 : stage_layer_config(s, l)->gain });
}

static void feed_forward(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x)
{
    if (mixture_is_away(s, l))
        tape_border(t, x);
    else if (((const struct gemma4_config *)s->model->own)->mixture.n_experts)
        dense_and_experts(t, s, l, x);
    else
        block_gated_ffn(t, s, l, x, ACTIVATION_GELU_TANH);
}

static uint64_t scratch_cols(const struct model *m)
{
    const struct gemma4_config *c = m->own;
    return c->mixture.n_experts ? mixture_scratch_cols(m) + 3ull * m->config.n_cols : 0;
}

static void layer(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                  struct tensor angles)
{
    struct tensor q = block_qkv_normed_values(t, s, l, x, angles);

    block_attend(t, s, l, x, (struct attend){ .q = q, .window = stage_layer_config(s, l)->window });
    feed_forward(t, s, l, x);
    if (((const struct gemma4_config *)s->model->own)->n_inputs)
        add_input(t, s, l, x);
}

const struct arch arch_gemma4 = { .name = "gemma4",
                                  .model_types = "gemma4_text gemma4 gemma4_unified_text gemma4_unified",
                                  .json_prefix = "model.language_model. language_model.model.",
                                  .activations = "gelu_pytorch_tanh gelu_tanh",
                                  .rope_part = "full_attention",
                                  ARCH_TABLES(config, weights),
                                  ARCH_OWN(struct gemma4_config, struct gemma4_weights),
                                  .complete = complete,
                                  .layers = layers,
                                  .check = check,
                                  .factors = factors,
                                  .scratch_cols = scratch_cols,
                                  .inputs = inputs,
                                  .layer = layer,
                                  .experts = feed_forward };
