// mixture.c - see mixture.h.
#include "models/mixture.h"
#include "base/log.h"
#include "ops/moe/moe.h"

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
             down = experts_down_work_cols(c->n_slots, c->n_ffn, c->n_shared, m->config.n_cols);

    return n_cols + 2 * c->n_slots + 1 + c->n_experts +
           experts_hidden_cols(c->n_slots, c->n_ffn, c->n_shared) + (up > down ? up : down);
}

static struct moe moe_of(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                         struct route_rule rule)
{
    const struct mixture_config *c = s->model->own;
    const struct mixture_weights *w = stage_layer_own(s, l);
    uint32_t n_shared = w->shared_gate ? c->n_shared : 0;
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
                                 .gate = w->gate,
                                 .up = w->up,
                                 .gate_bias = w->gate_bias,
                                 .up_bias = w->up_bias,
                                 .shared_gate = w->shared_gate,
                                 .shared_up = w->shared_up,
                                 .n_experts = c->n_experts,
                                 .activation = ACTIVATION_SILU,
                                 .limit = c->limit },
                         .down = { .out = x,
                                   .in = hidden,
                                   .ids = route.ids,
                                   .weights = route.weights,
                                   .down = w->down,
                                   .bias = w->down_bias,
                                   .shared = w->shared_down,
                                   .add = x,
                                   .n_experts = c->n_experts } };
}

void mixture_block(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                   struct route_rule rule)
{
    struct moe m = moe_of(t, s, l, x, rule);

    tape_label(t, "layer%u.experts", l);
    if (op_moe(t, &m))
        return;
    tape_label(t, "layer%u.route", l);
    op_route(t, m.route);
    tape_label(t, "layer%u.experts_up", l);
    op_experts_up(t, m.up);
    tape_label(t, "layer%u.experts_down", l);
    op_experts_down(t, m.down);
}

void mixture_or_dense_block(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x)
{
    if (l < s->model->config.n_dense)
        block_gated_ffn(t, s, l, x, ACTIVATION_SILU);
    else
        mixture_block(t, s, l, x, mixture_rule(s->model));
}
