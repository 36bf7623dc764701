// away.c - see away.h.
#include "engine/stage/away.h"
#include "base/mem.h"

struct layer_range away_layers(const struct model *m, uint32_t n_away, struct layer_range layers)
{
    uint32_t n = m->config.n_layers, first = n_away < n ? n - n_away : 0;

    first = first < m->config.n_dense ? m->config.n_dense : first;
    first = first < layers.first ? layers.first : first;
    return (struct layer_range){ first < layers.last && m->n_experts ? first : layers.last, layers.last };
}

bool away_create(struct stage *s, const struct stage_plan *plan, struct stage_progress *progress,
                 struct err *err)
{
    struct layer_range layers = away_layers(plan->model, plan->shape->n_away, plan->layers);
    struct stage_shape shape = *plan->shape;

    if (plan->is_experts || plan->is_draft || layers.first == layers.last)
        return true;
    shape.n_away = 0;
    shape.exact = plan->experts_exact;
    struct stage_plan own = { .model = plan->model,
                              .device = plan->experts,
                              .layers = layers,
                              .shape = &shape,
                              .before = s,
                              .adapters = plan->adapters,
                              .is_experts = true };
    s->away = mem_alloc(sizeof *s->away);
    if (!s->away)
        return err_memory(err, "a stage");
    return stage_create(&s->away->stage, &own, progress, err) &&
           link_create(&s->away->there, s, &s->away->stage, err) &&
           link_create(&s->away->back, &s->away->stage, s, err);
}

void away_free(struct away *a)
{
    if (!a)
        return;
    link_release(&a->there);
    link_release(&a->back);
    stage_release(&a->stage);
    mem_free(a);
}

static bool play_experts(struct away *a, const struct bucket *b, uint32_t segment, uint32_t n_rows,
                         struct err *err)
{
    return link_pass(&a->there, n_rows, err) && stage_play_segment(&a->stage, b, segment, err) &&
           link_pass(&a->back, n_rows, err);
}

bool away_play(struct stage *s, const struct step *step, struct err *err)
{
    struct away *a = s->away;
    const struct bucket *here = stage_bucket(s, step->n_rows, step->n_outputs, err),
                        *there = stage_bucket(&a->stage, step->n_rows, step->n_outputs, err);
    bool ok = here && there && stage_step_write(&a->stage, step, err);
    uint32_t n = ok ? tape_n_segments(here->tape) : 0;

    for (uint32_t i = 0; i < n && ok; i++)
        ok = stage_play_segment(s, here, i, err) &&
             (i + 1 == n || play_experts(a, there, i, step->n_rows, err));
    return ok;
}
