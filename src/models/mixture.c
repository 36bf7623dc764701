// mixture.c - see mixture.h.
#include "models/mixture.h"
#include "ops/experts/experts.h"

bool mixture_check(const struct model *m, struct err *err)
{
    const struct mixture_config *c = m->own;

    return c->n_slots <= c->n_experts ||
           err_set(err, ERR_INPUT, "%s: %u experts a token, but a layer has %u; want at most all of them",
                   model_file_path(m->file), c->n_slots, c->n_experts);
}

static void record_route(struct tape *t, const struct model_stage *s, uint32_t l, struct route *route)
{
    const struct mixture_weights *w = stage_layer_own(s, l);

    route->norm = stage_layer(s, l)->ffn_norm;
    route->router = w->router;
    route->shared_gate = w->shared_router;
    route->eps = s->model->factors.eps;
    tape_label(t, "layer%u.route", l);
    op_route(t, *route);
}

void block_mixture(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                   struct route_rule rule)
{
    const struct mixture_config *c = s->model->own;
    const struct mixture_weights *w = stage_layer_own(s, l);
    struct tensor hidden = tape_tensor(
        t, experts_hidden_cols(c->n_slots, c->n_ffn, w->shared_gate ? c->n_shared : 0), ROWS_STEP);
    struct route route = { .in = x,
                           .normed = tape_tensor(t, x.n_cols, ROWS_STEP),
                           .ids = tape_tensor(t, c->n_slots, ROWS_STEP),
                           .weights = tape_tensor(t, c->n_slots + 1, ROWS_STEP),
                           .rule = rule };

    route.rule.normalise = c->normalise;
    record_route(t, s, l, &route);
    tape_label(t, "layer%u.experts_up", l);
    op_experts_up(t, (struct experts_up){ .out = hidden,
                                          .in = route.normed,
                                          .ids = route.ids,
                                          .gate = w->gate,
                                          .up = w->up,
                                          .shared_gate = w->shared_gate,
                                          .shared_up = w->shared_up,
                                          .n_experts = c->n_experts,
                                          .activation = ACTIVATION_SILU });
    tape_label(t, "layer%u.experts_down", l);
    op_experts_down(t, (struct experts_down){ .out = x,
                                              .in = hidden,
                                              .ids = route.ids,
                                              .weights = route.weights,
                                              .down = w->down,
                                              .shared = w->shared_down,
                                              .add = x,
                                              .n_experts = c->n_experts });
}
