// qwen35.c - Qwen3.5, 3.6 and 3.8, their text, dense or with experts (Qwen team, 2026): three of four layers
// are gated delta nets (Yang et al., 2024), with a short convolution before the recurrence and a gated norm
// behind it; in the others attention's output has a gate, and a quarter of a head rotates.
//
// Norms multiply by 1 + w: checkpoints hold w, GGUF files the sum; the delta net's own norm is plain. GGUF
// files have the value heads of a delta net in another order than checkpoints, and -exp(A_log) in place of
// A_log.
#include "models/recurrent/qwen35.h"
#include "models/binding/layer_config.h"
#include "ops/delta_step/delta_step.h"
#include "ops/matmul/matmul.h"

static const struct config_key dense_config[] = {
    QWEN35_CONFIG,
    SIZE_KEY(n_ffn, "%s.feed_forward_length", "intermediate_size", 1 << 20, REQUIRED),
};

static const struct weight_key dense_weights[] = {
    QWEN35_WEIGHTS,
    L(gate, "blk.%u.ffn_gate.weight", QWEN35_LAYER "mlp.gate_proj.weight", FFN, COLS),
    L(up, "blk.%u.ffn_up.weight", QWEN35_LAYER "mlp.up_proj.weight", FFN, COLS),
    L(down, "blk.%u.ffn_down.weight", QWEN35_LAYER "mlp.down_proj.weight", COLS, FFN),
};

static bool is_gguf(const struct model *m)
{
    return model_file_format(m->file) == MODEL_GGUF;
}

static bool complete(struct model *m, struct err *err)
{
    struct qwen35_config *c = m->own;

    c->d_v = is_gguf(m) ? c->d_k : c->d_v;
    c->n_values = c->n_v_heads * c->d_v;
    c->n_mixed = 2 * c->n_k_heads * c->d_k + c->n_values;
    c->gated_head = 2 * m->config.head_dim;
    if (c->n_v_heads % c->n_k_heads != 0)
        return err_set(err, ERR_INPUT, "%s: %u value heads are no multiple of %u key heads",
                       model_file_path(m->file), c->n_v_heads, c->n_k_heads);
    if (is_gguf(m) && c->inner != c->n_values)
        return err_set(err, ERR_INPUT, "%s: %s.ssm.inner_size is %u; want %u heads of %u",
                       model_file_path(m->file), m->arch->name, c->inner, c->n_v_heads, c->d_v);
    return model_read_rotated(m, 0.25, err);
}

static bool check(const struct model *m, struct err *err)
{
    bool gate = true;

    if (!model_file_bool(m->file, "attn_output_gate", &gate, err))
        return false;
    return gate ||
           err_set(err, ERR_UNSUPPORTED, "%s: attn_output_gate is false; ingot runs %s models with it",
                   model_file_path(m->file), m->arch->name);
}

static bool layers(struct model *m, struct err *err)
{
    const struct qwen35_config *own = m->own;
    uint64_t words =
        conv_step_words(own->n_mixed, own->kernel) + (uint64_t)own->n_v_heads * own->d_k * own->d_v;

    if (words > 1 << 28)
        return err_set(err, ERR_LIMIT, "%s: a layer's state has %llu numbers; want at most %u",
                       model_file_path(m->file), (unsigned long long)words, 1u << 28);
    for (uint32_t l = 0; l < m->config.n_layers; l++) {
        bool recurrent = (l + 1) % own->interval != 0;
        const char *key = is_gguf(m) ? "%s.attention.recurrent_layers" : "layer_types";
        if (!layer_config_recurrent(m, key, l, &recurrent, err))
            return false;
        m->layer_configs[l].state_words = recurrent ? (uint32_t)words : 0;
    }
    return true;
}

static void gated_attention(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                            struct tensor angles)
{
    const struct layer_weights *w = stage_layer(s, l);
    const struct qwen35_weights *own = stage_layer_own(s, l);
    struct tensor q = block_qkv(t, s, l, x, angles), gate = tape_tensor(t, q.n_cols, ROWS_STEP),
                  attended = tape_tensor(t, q.n_cols, ROWS_STEP);

    tape_label(t, "layer%u.attn_gate", l);
    op_matmul_normed(
        t, (struct matmul_normed){
               .out = gate, .in = x, .norm = w->attn_norm, .w = own->q_gate, .eps = s->model->factors.eps });
    tape_label(t, "layer%u.attend", l);
    op_attend(
        t, (struct attend){
               .out = attended, .q = q, .pages = s->pages[l - s->first], .scale = s->model->factors.attend });
    op_gated_norm(t, (struct gated_norm){
                         .out = attended, .in = attended, .z = gate, .n_groups = 1, .flags = GATED_SIGMOID });
    tape_label(t, "layer%u.attn_out", l);
    op_matmul(t, (struct matmul){ .out = x, .in = attended, .w = w->o, .add = x });
}

struct delta_tensors {              // what a delta net's commands hand on
    struct tensor mixed, convolved; // q, k and v
    struct tensor z, out;           // the gated norm's gate and result
    struct tensor dt, beta;         // the recurrence's gates
};

// The normed row times four matrices. Those of the gates are short, and often in a format of their own.
static void record_delta_in(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                            const struct delta_tensors *d)
{
    const struct qwen35_weights *w = stage_layer_own(s, l);
    struct matmul_normed in = { .out = d->mixed,
                                .more = d->z,
                                .in = x,
                                .norm = stage_layer(s, l)->attn_norm,
                                .w = w->mixed,
                                .v = w->z,
                                .eps = s->model->factors.eps },
                         gates = in;

    gates.out = d->dt;
    gates.more = d->beta;
    gates.w = w->alpha;
    gates.v = w->beta;
    op_matmul_normed(t, in);
    op_matmul_normed(t, gates);
}

static void record_delta_step(struct tape *t, const struct model_stage *s, uint32_t l,
                              const struct delta_tensors *d)
{
    const struct qwen35_config *c = s->model->own;
    const struct qwen35_weights *w = stage_layer_own(s, l);
    struct state_rows states = s->states[l - s->first];
    uint32_t n_keys = c->n_k_heads * c->d_k;

    op_delta_step(t, &(struct delta_step){
                         .conv = { .out = d->convolved,
                                   .in = d->mixed,
                                   .w = w->conv,
                                   .states = states,
                                   .flags = CONV_SILU },
                         .scan = { .out = d->out,
                                   .in = d->convolved,
                                   .dt = d->dt,
                                   .beta = d->beta,
                                   .a = w->a,
                                   .dt_bias = w->dt_bias,
                                   .states = states,
                                   .state_at = conv_step_words(c->n_mixed, c->kernel),
                                   .n_heads = c->n_v_heads,
                                   .n_k_heads = c->n_k_heads,
                                   .d_k = c->d_k,
                                   .d_v = c->d_v,
                                   .k_at = n_keys,
                                   .v_at = 2 * n_keys,
                                   .flags = SCAN_DELTA | (is_gguf(s->model) ? SCAN_TILED : SCAN_LOG_A) },
                         .norm = { .out = d->out,
                                   .in = d->out,
                                   .z = d->z,
                                   .scale = w->norm,
                                   .n_groups = c->n_v_heads,
                                   .eps = s->model->factors.eps } });
}

static void delta_net(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x)
{
    const struct qwen35_config *c = s->model->own;
    const struct qwen35_weights *w = stage_layer_own(s, l);
    const struct delta_tensors d = { .mixed = tape_tensor(t, c->n_mixed, ROWS_STEP),
                                     .convolved = tape_tensor(t, c->n_mixed, ROWS_STEP),
                                     .z = tape_tensor(t, c->n_values, ROWS_STEP),
                                     .out = tape_tensor(t, c->n_values, ROWS_STEP),
                                     .dt = tape_tensor(t, c->n_v_heads, ROWS_STEP),
                                     .beta = tape_tensor(t, c->n_v_heads, ROWS_STEP) };

    tape_label(t, "layer%u.delta_in", l);
    record_delta_in(t, s, l, x, &d);
    tape_label(t, "layer%u.delta_step", l);
    record_delta_step(t, s, l, &d);
    tape_label(t, "layer%u.delta_out", l);
    op_matmul(t, (struct matmul){ .out = x, .in = d.out, .w = w->out, .add = x });
}

static void mix(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                struct tensor angles)
{
    if (stage_layer_config(s, l)->state_words > 0)
        delta_net(t, s, l, x);
    else
        gated_attention(t, s, l, x, angles);
}

static uint64_t scratch_cols(const struct model *m)
{
    const struct qwen35_config *c = m->own;
    return m->config.n_cols + 2ull * c->n_mixed + 2ull * c->n_values + 2ull * c->n_v_heads +
           2ull * m->config.n_heads * m->config.head_dim;
}

static void dense_layer(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                        struct tensor angles)
{
    mix(t, s, l, x, angles);
    block_gated_ffn(t, s, l, x, ACTIVATION_SILU);
}

const struct arch arch_qwen35 = { .name = "qwen35",
                                  .model_types = "qwen3_5 qwen3_5_text",
                                  .json_prefix = "model.language_model.",
                                  .gguf_differs = true,
                                  .gguf_regroups = true,
                                  .activations = "silu swish",
                                  .drafts = true,
                                  .draft_layer = QWEN35_DRAFT,
                                  ARCH_TABLES(dense_config, dense_weights),
                                  ARCH_OWN(struct qwen35_config, struct qwen35_weights),
                                  .complete = complete,
                                  .layers = layers,
                                  .check = check,
                                  .scratch_cols = scratch_cols,
                                  .layer = dense_layer };

// ---- with experts, in every layer, and a shared one that has a gate

static const struct config_key moe_config[] = {
    QWEN35_CONFIG,
    SIZE_KEY(n_ffn, "%s.feed_forward_length", "intermediate_size", 1 << 20, DEFAULT(1)), // of no layer
    MIXTURE_CONFIG("num_experts"),
    MIXTURE_NORMALISE(1),
    MIXTURE_SIZE(n_shared, "%s.expert_shared_feed_forward_length", "shared_expert_intermediate_size", 1 << 20,
                 REQUIRED),
};

#define MLP QWEN35_LAYER "mlp."
static const struct weight_key moe_weights[] = {
    QWEN35_WEIGHTS,
    MIXTURE_WEIGHT(router, "blk.%u.ffn_gate_inp.weight", MLP "gate.weight", MIXTURE_DIM(n_experts), DIM_COLS),
    MIXTURE_WEIGHT(gate, "blk.%u.ffn_gate_exps.weight", MLP "experts.gate_up_proj", MIXTURE_DIM(n_ffn),
                   DIM_COLS, MIXTURE_STACK, .half = 1),
    MIXTURE_WEIGHT(up, "blk.%u.ffn_up_exps.weight", MLP "experts.gate_up_proj", MIXTURE_DIM(n_ffn), DIM_COLS,
                   MIXTURE_STACK, .half = 2),
    MIXTURE_WEIGHT(down, "blk.%u.ffn_down_exps.weight", MLP "experts.down_proj", DIM_COLS, MIXTURE_DIM(n_ffn),
                   MIXTURE_STACK),
    MIXTURE_WEIGHT(shared_router, "blk.%u.ffn_gate_inp_shexp.weight", MLP "shared_expert_gate.weight",
                   DIM_ONE, DIM_COLS),
    MIXTURE_WEIGHT(shared_gate, "blk.%u.ffn_gate_shexp.weight", MLP "shared_expert.gate_proj.weight",
                   MIXTURE_DIM(n_shared), DIM_COLS),
    MIXTURE_WEIGHT(shared_up, "blk.%u.ffn_up_shexp.weight", MLP "shared_expert.up_proj.weight",
                   MIXTURE_DIM(n_shared), DIM_COLS),
    MIXTURE_WEIGHT(shared_down, "blk.%u.ffn_down_shexp.weight", MLP "shared_expert.down_proj.weight",
                   DIM_COLS, MIXTURE_DIM(n_shared)),
};

static bool moe_check(const struct model *m, struct err *err)
{
    return check(m, err) && mixture_check(m, err);
}

static uint64_t moe_scratch_cols(const struct model *m)
{
    return scratch_cols(m) + mixture_scratch_cols(m);
}

static void experts(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x)
{
    mixture_block(t, s, l, x,
                  (struct route_rule){ ROUTE_SOFTMAX, .n_groups = 1, .n_used_groups = 1, .scale = 1 });
}

static void moe_layer(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                      struct tensor angles)
{
    mix(t, s, l, x, angles);
    experts(t, s, l, x);
}

const struct arch arch_qwen35moe = { .name = "qwen35moe",
                                     .model_types = "qwen3_5_moe qwen3_5_moe_text",
                                     .json_prefix = "model.language_model.",
                                     .gguf_differs = true,
                                     .gguf_regroups = true,
                                     .activations = "silu swish",
                                     .drafts = true,
                                     .draft_layer = QWEN35_DRAFT,
                                     ARCH_TABLES(moe_config, moe_weights),
                                     ARCH_OWN(struct qwen35_config, struct qwen35_weights),
                                     .complete = complete,
                                     .layers = layers,
                                     .check = moe_check,
                                     .scratch_cols = moe_scratch_cols,
                                     .layer = moe_layer,
                                     .experts = experts };
