// shown.c - see shown.h.
#include "engine/health/shown.h"
#include <stdio.h>
#include <string.h>
#include "engine/engine.h"
#include "engine/speculate/draft_stage.h"
#include "engine/stage/away.h"
#include "engine/stage/remote.h"

static size_t name_stages(const struct engine_loaded *l, char *to, size_t n)
{
    struct device_info device = { 0 };
    size_t at = 0;

    if (l->remote) {
        remote_describe(l->remote, l->devices.at[0]->name, to, n);
        return strlen(to);
    }
    l->devices.at[0]->ops->info(l->devices.at[0], &device);
    if (l->devices.n == 1)
        return (size_t)snprintf(to, n, "%s: %s", l->devices.at[0]->name, device.name);
    for (uint32_t i = 0; l->n_parts && i < l->n_parts && at < n; i++)
        at += (size_t)snprintf(to + at, n - at, "%s%s", i ? " + " : "", l->devices.at[i]->name);
    if (l->n_parts && at < n)
        at += (size_t)snprintf(to + at, n - at, ": a part of every layer on each, %s", device.name);
    for (uint32_t i = 0; !l->n_parts && i < l->n_stages && at < n; i++)
        at += (size_t)snprintf(to + at, n - at, "%s%s for layers %u to %u", i ? ", " : "",
                               l->stages[i].device->name, l->stages[i].parts.first,
                               l->stages[i].parts.last - 1);
    return at;
}

static void name_devices(const struct engine_loaded *l, char *to, size_t n)
{
    size_t at = name_stages(l, to, n);
    uint32_t n_layers = l->model.config.n_layers;

    if (l->devices.experts && at < n)
        snprintf(to + at, n - at, ", experts of layers %u to %u on %s",
                 away_layers(&l->model, l->devices.n_away, (struct layer_range){ 0, n_layers }).first,
                 n_layers - 1, l->devices.experts->name);
}

static uint64_t scratch_bytes(const struct stage *s)
{
    uint64_t bytes = 0;

    for (uint32_t b = 0; b < N_BUCKETS; b++)
        bytes += s->buckets[b].tape ? tape_scratch_bytes(s->buckets[b].tape) : 0;
    return bytes;
}

void shown_update(struct engine *e)
{
    const struct engine_loaded *l = e->loaded;
    struct shown *shown = &e->shown;

    *shown = (struct shown){ .n_stages = l->remote ? l->remote->placement.n : l->n_stages,
                             .k_format = l->stages[0].shape.k_format,
                             .v_format = l->stages[0].shape.v_format };
    for (uint32_t i = 0; i < l->n_stages; i++) {
        const struct stage *s = &l->stages[i];
        shown->page_bytes +=
            stage_page_bytes(s) +
            s->shape.n_states * model_state_words(&l->model, s->parts.first, s->parts.last) * sizeof(float);
        shown->scratch_bytes += scratch_bytes(s) + (s->away ? scratch_bytes(&s->away->stage) : 0);
        for (uint32_t k = 0; k < s->n_others; k++)
            shown->scratch_bytes += scratch_bytes(&s->others[k]);
    }
    if (e->draft_stage) {
        shown->draft_bytes = l->model.draft_bytes;
        shown->page_bytes += stage_page_bytes(draft_stage_of(e->draft_stage));
        shown->scratch_bytes += scratch_bytes(draft_stage_of(e->draft_stage));
    }
    name_devices(l, shown->device, sizeof shown->device);
}
