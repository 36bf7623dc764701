// outline.c - see outline.h.
#include "engine/stage/outline.h"
#include "base/mem.h"
#include "engine/stage/away.h"

uint64_t stage_scratch_bytes(const struct stage *s)
{
    uint64_t bytes = s->logits.bytes + s->results.bytes + s->mask_bias.bytes + s->step.bytes + s->sums.bytes +
                     s->head_part.bytes + s->inputs.bytes + s->scales.bytes +
                     (s->borrows_block ? 0 : s->block.bytes) +
                     (s->borrows_tables ? 0 : s->table.bytes + s->window_table.bytes + s->history.bytes);

    for (uint32_t b = 0; b < N_BUCKETS; b++)
        bytes += s->buckets[b].tape ? tape_scratch_bytes(s->buckets[b].tape) : 0;
    return bytes;
}

static void set_outlines(const struct devices *d, bool outlines)
{
    for (uint32_t i = 0; i < d->n; i++)
        d->at[i]->outlines = outlines;
    if (d->experts)
        d->experts->outlines = outlines;
}

static bool record_all(struct stage *s, struct err *err)
{
    for (uint32_t b = 0; b < N_BUCKETS; b++)
        if (!stage_bucket(s, s->buckets[b].max_rows, s->buckets[b].max_outputs, err))
            return false;
    return true;
}

// Of two devices, of which one has to wait for the other's activations, the pipeline has slots of its own.
static uint64_t slot_bytes(const struct outline_request *r, uint32_t i)
{
    const struct placement *p = r->placement;
    bool has = r->shape->overlaps && i > 0 && p->device[i] != p->device[i - 1];

    return has ? 2ull * r->shape->max_rows * r->model->config.n_cols * sizeof(float) : 0;
}

static bool outline_one(const struct outline_request *r, struct stage *stages, uint32_t i,
                        struct outline *outline, struct err *err)
{
    struct stage_progress progress = { 0 };
    struct stage_shape shape = *r->shape;
    struct device *device = r->devices->at[r->placement->device[i]], *experts = r->devices->experts;

    shape.exact = r->exact || devices_is_plain(device);
    struct stage_plan plan = { .model = r->model,
                               .device = device,
                               .layers = r->placement->layers[i],
                               .shape = &shape,
                               .before = i ? &stages[i - 1] : NULL,
                               .adapters = r->adapters,
                               .experts = experts,
                               .experts_exact = r->exact || (experts && devices_is_plain(experts)) };
    if (!stage_create(&stages[i], &plan, &progress, err) || !record_all(&stages[i], err))
        return false;
    outline->scratch[i] = stage_scratch_bytes(&stages[i]) + slot_bytes(r, i);
    outline->experts[i] = stages[i].away ? stage_scratch_bytes(&stages[i].away->stage) : 0;
    return true;
}

// The layer that drafts, behind the last stage.
static bool outline_draft(const struct outline_request *r, const struct stage *before, struct stage *s,
                          uint64_t *scratch, struct err *err)
{
    struct stage_progress progress = { 0 };
    uint32_t n_layers = r->model->config.n_layers;
    struct stage_plan plan = { .model = r->model,
                               .device = before->device,
                               .layers = { n_layers, n_layers + 1 },
                               .shape = &before->shape,
                               .before = before,
                               .is_draft = true };

    if (!stage_create(s, &plan, &progress, err) || !record_all(s, err))
        return false;
    *scratch += stage_scratch_bytes(s);
    return true;
}

bool outline_stages(const struct outline_request *r, struct outline *outline, struct err *err)
{
    uint32_t n = r->placement->n;
    struct stage *stages = mem_alloc_array(n + 1, sizeof *stages); // and the one that drafts
    bool ok = true;

    *outline = (struct outline){ 0 };
    if (!stages)
        return err_memory(err, "the outline of stages");
    set_outlines(r->devices, true);
    for (uint32_t i = 0; ok && i < n; i++)
        ok = outline_one(r, stages, i, outline, err);
    bool drafts = r->shape->drafts && r->placement->layers[n - 1].last == r->model->config.n_layers;
    if (ok && drafts)
        ok = outline_draft(r, &stages[n - 1], &stages[n], &outline->scratch[n - 1], err);
    for (uint32_t i = n + 1; i-- > 0;)
        stage_release(&stages[i]);
    set_outlines(r->devices, false);
    mem_free(stages);
    return ok;
}

bool outline_vision(const struct vision_plan *plan, uint64_t *scratch, struct err *err)
{
    struct vision v;

    plan->device->outlines = true;
    bool ok = vision_create(&v, plan, err);
    if (ok) {
        *scratch = vision_scratch_bytes(&v);
        vision_release(&v);
    }
    plan->device->outlines = false;
    return ok;
}
