// mixture.c - see mixture.h.
#include "models/mixture.h"
#include "base/log.h"
#include "ops/moe/moe.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/trellis/trellis.h"
#include "ops/trellis_experts/trellis_experts.h"

static bool groups_check(const struct model *m, struct err *err)
{
    const struct mixture_config *c = m->own;
    uint32_t n = c->n_groups, used = c->n_used_groups, least = c->biased ? 2 : 1; // experts of a group

    if (n <= 1)
        return true;
    if (c->n_experts % n != 0 || c->n_experts / n < least || used > n)
        return err_set(err, ERR_INPUT, "%s: %u of %u groups of %u experts; want equal groups of %u or more",
                       model_file_path(m->file), used, n, c->n_experts, least);
    return c->n_experts / n * used >= c->n_slots ||
           err_set(err, ERR_INPUT,
                   "%s: %u experts a token, but %u groups of %u hold %u; want at most all of them",
                   model_file_path(m->file), c->n_slots, used, c->n_experts / n, c->n_experts / n * used);
}

bool mixture_check(const struct model *m, struct err *err)
{
    const struct mixture_config *c = m->own;

    if (c->n_slots > c->n_experts)
        return err_set(err, ERR_INPUT, "%s: %u experts a token, but a layer has %u; want at most all of them",
                       model_file_path(m->file), c->n_slots, c->n_experts);
    if (m->config.n_dense >= m->config.n_layers && m->config.n_dense > 0)
        return err_set(err, ERR_INPUT, "%s: %u leading dense layers of %u in all; want fewer",
                       model_file_path(m->file), m->config.n_dense, m->config.n_layers);
    return groups_check(m, err);
}

static bool file_has_bias(const struct model *m)
{
    char name[64];

    snprintf(name, sizeof name, "blk.%u.exp_probs_b.bias", m->config.n_dense);
    return model_file_tensor(m->file, name) != NULL;
}

bool mixture_complete(struct model *m, enum mixture_gating scores, struct err *err)
{
    struct mixture_config *c = m->own;
    bool gguf = model_file_format(m->file) == MODEL_GGUF;

    if (c->gating == GATING_UNKNOWN) {
        c->gating = !gguf ? scores : file_has_bias(m) ? GATING_SIGMOID : GATING_SOFTMAX;
        if (gguf)
            log_line(LOG_INFO, "load", "%s does not say how its router scores; it has %s bias: %s",
                     model_file_path(m->file), c->gating == GATING_SIGMOID ? "a" : "no",
                     c->gating == GATING_SIGMOID ? "sigmoid" : "softmax");
    }
    c->biased = c->gating == GATING_SIGMOID;
    if ((uint64_t)c->n_shared_experts * c->n_ffn > 1 << 20)
        return err_set(err, ERR_INPUT, "%s: %u shared experts of %u hidden numbers; want at most %u in all",
                       model_file_path(m->file), c->n_shared_experts, c->n_ffn, 1u << 20);
    c->n_shared = c->n_shared_experts * c->n_ffn;
    return true;
}

struct route_rule mixture_rule(const struct model *m)
{
    const struct mixture_config *c = m->own;
    bool sigmoid = c->gating == GATING_SIGMOID;

    return (struct route_rule){ .scores = sigmoid ? ROUTE_SIGMOID : ROUTE_SOFTMAX,
                                .n_groups = c->n_groups,
                                .n_used_groups = c->n_used_groups,
                                .rank = sigmoid ? ROUTE_TWO_BEST : ROUTE_BEST,
                                .floor = 1e-20f,
                                .scale = c->scale };
}

uint64_t mixture_scratch_cols(const struct model *m)
{
    const struct mixture_config *c = m->own;
    uint64_t n_cols = m->config.n_cols, up = experts_up_work_cols(c->n_slots, m->config.n_cols),
             down = experts_down_work_cols(c->n_slots, c->n_ffn, c->n_shared, m->config.n_cols),
             codes = trellis_experts_work_cols(c->n_slots, m->config.n_cols, c->n_ffn) + 2 * c->n_shared,
             most = up > down ? up : down;

    most = codes > most ? codes : most;

    return n_cols + 2 * c->n_slots + 1 + c->n_experts +
           experts_hidden_cols(c->n_slots, c->n_ffn, c->n_shared) + most;
}

static struct moe moe_of(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                         struct route_rule rule)
{
    const struct mixture_config *c = s->model->own;
    const struct mixture_weights *w = stage_layer_own(s, l);
    uint32_t n_shared = w->shared_up ? c->n_shared : 0;
    struct tensor hidden = tape_tensor(t, experts_hidden_cols(c->n_slots, c->n_ffn, n_shared), ROWS_STEP);
    struct route route = { .in = x,
                           .normed = tape_tensor(t, x.n_cols, ROWS_STEP),
                           .ids = tape_tensor(t, c->n_slots, ROWS_STEP),
                           .weights = tape_tensor(t, c->n_slots + 1, ROWS_STEP),
                           .norm = stage_layer(s, l)->ffn_norm,
                           .router = w->router,
                           .bias = w->router_bias,
                           .select_bias = w->select_bias,
                           .shared_gate = w->shared_router,
                           .rule = rule,
                           .eps = s->model->factors.eps };

    route.rule.normalise = c->normalise;
    return (struct moe){ .route = route,
                         .up = { .out = hidden,
                                 .in = route.normed,
                                 .ids = route.ids,
                                 .gate = w->gate ? w->gate : w->up,
                                 .up = w->up,
                                 .gate_bias = w->gate_bias,
                                 .up_bias = w->up_bias,
                                 .shared_gate = w->shared_gate ? w->shared_gate : w->shared_up,
                                 .shared_up = w->shared_up,
                                 .n_experts = c->n_experts,
                                 .activation = (enum activation)c->activation,
                                 .limit = c->limit },
                         .down = { .out = x,
                                   .in = hidden,
                                   .ids = route.ids,
                                   .weights = route.weights,
                                   .down = w->down,
                                   .bias = w->down_bias,
                                   .shared = w->shared_down,
                                   .add = block_rank_add(s, x),
                                   .n_experts = c->n_experts } };
}

bool mixture_is_away(const struct model_stage *s, uint32_t l)
{
    const struct model_config *c = &s->model->config;

    return s->model->n_experts > 0 && l >= c->n_dense && l < c->n_layers && l + s->n_away >= c->n_layers;
}

bool mixture_has_place(const struct model *m, uint32_t place)
{
    for (uint32_t i = 0; i < m->arch->n_weights; i++) {
        const struct weight_key *k = &m->arch->weights[i];
        if (k->per_layer && k->place == place && k->layers == LAYERS_MIXTURE)
            return true;
    }
    return false;
}

void mixture_record(struct tape *t, const struct model_stage *s)
{
    struct tensor x = tape_tensor_bound(t, s->model->config.n_cols, ROWS_STEP, s->block);

    for (uint32_t l = s->first; l < s->last; l++) {
        if (l > s->first)
            tape_border(t, x);
        s->model->arch->experts(t, s, l, x);
    }
}

static void record_parts(struct tape *t, const struct moe *m, uint32_t l)
{
    if (m->expert_norm) {
        tape_label(t, "layer%u.experts_in", l);
        op_rmsnorm(t, (struct rmsnorm){
                          .out = m->up.in, .in = m->route.in, .scale = m->expert_norm, .eps = m->route.eps });
    }
    tape_label(t, "layer%u.route", l);
    op_route(t, m->route);
    if (trellis_multiplies(m->up.gate)) {
        tape_label(t, "layer%u.experts", l);
        op_trellis_experts(t, &m->up, &m->down);
        return;
    }
    tape_label(t, "layer%u.experts_up", l);
    op_experts_up(t, m->up);
    tape_label(t, "layer%u.experts_down", l);
    op_experts_down(t, m->down);
}

// Ranks choose experts by the same bits: all by the parts.
static void record(struct tape *t, const struct model_stage *s, const struct moe *m, uint32_t l)
{
    tape_label(t, "layer%u.experts", l);
    if (s->model->n_ranks || !op_moe(t, m))
        record_parts(t, m, l);
    block_rank_sum(t, s, m->down.out);
}

void mixture_block(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                   struct route_rule rule)
{
    if (mixture_is_away(s, l)) {
        tape_border(t, x);
        return;
    }
    struct moe m = moe_of(t, s, l, x, rule);

    record(t, s, &m, l);
}

struct tensor mixture_sum(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                          const struct mixture_router *r)
{
    struct moe m = moe_of(t, s, l, x, r->rule);

    m.route.norm = r->norm;
    m.route.expert_scale = r->expert_scale;
    m.route.gain = r->gain;
    m.expert_norm = r->expert_norm;
    m.up.in = tape_tensor(t, x.n_cols, ROWS_STEP);
    m.down.add = (struct tensor){ 0 };
    m.down.out = block_rank_tensor(t, s, x.n_cols);
    record(t, s, &m, l);
    return m.down.out;
}

void mixture_or_dense_block(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x)
{
    if (l < s->model->config.n_dense)
        block_gated_ffn(t, s, l, x, ACTIVATION_SILU);
    else
        mixture_block(t, s, l, x, mixture_rule(s->model));
}
