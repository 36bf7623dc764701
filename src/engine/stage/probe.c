// probe.c - see probe.h. A stage of one layer that is neither the first nor the last is a layer; a stage of
// the last layer, less that, is the head. Layers count as alike.
#include "engine/stage/probe.h"
#include <stdlib.h>
#include "base/clock.h"
#include "base/mem.h"

enum { PROBE_ROWS = 256, PROBE_PLAYS = 7 };
static const uint64_t ENOUGH_NS = 300000000; // a slow device is not played more often than needed

static int compare_ns(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

static bool play_once(struct stage *s, const struct step *step, uint64_t *ns, struct err *err)
{
    uint64_t begun = clock_ns();

    if (!stage_play(s, step, err) || !s->device->ops->wait(s->device, err))
        return false;
    *ns = clock_ns() - begun;
    return true;
}

// The median of a few plays after the first.
static bool time_step(struct stage *s, const struct step *step, uint64_t *median, struct err *err)
{
    uint64_t ns[PROBE_PLAYS], spent = 0;
    uint32_t n = 0;

    if (!play_once(s, step, &ns[0], err))
        return false;
    while (n < PROBE_PLAYS && (n == 0 || spent < ENOUGH_NS)) {
        if (!play_once(s, step, &ns[n], err))
            return false;
        spent += ns[n++];
    }
    qsort(ns, n, sizeof *ns, compare_ns);
    *median = ns[n / 2];
    return true;
}

// One sequence's first n_rows tokens; the last one's logits.
static void fill_step(struct step *step, const struct bucket *bucket, uint32_t n_rows)
{
    uint32_t *words = (uint32_t *)step;

    memset(step, 0, step_bytes(bucket->max_rows, bucket->max_outputs));
    *step = (struct step){
        .n_rows = n_rows, .n_outputs = 1, .max_rows = bucket->max_rows, .max_outputs = bucket->max_outputs
    };
    for (uint32_t i = 0; i < n_rows; i++)
        words[step_at_positions(bucket->max_rows) + i] = i;
    words[step_at_outputs(bucket->max_rows)] = n_rows - 1;
}

static bool time_layers(const struct stage_plan *plan, uint32_t n_rows, uint64_t ns[2], struct err *err)
{
    struct stage_progress silent = { 0 };
    struct stage s;
    struct step *step = mem_alloc(step_bytes(plan->shape->max_rows, plan->shape->max_outputs));

    if (!step)
        return err_memory(err, "a step");
    bool ok = stage_create(&s, plan, &silent, err);
    for (uint32_t i = 0; ok && i < 2; i++) {
        uint32_t n = i ? n_rows : 1;
        fill_step(step, &s.buckets[stage_bucket_index(&s, n, 1)], n);
        ok = time_step(&s, step, &ns[i], err);
    }
    stage_release(&s); // zeroed when it was not made
    mem_free(step);
    return ok;
}

bool probe_device(struct device *d, const struct model *m, const struct stage_shape *shape,
                  struct probe_speed *speed, struct err *err)
{
    uint32_t n_layers = m->config.n_layers,
             n_rows = shape->max_rows < PROBE_ROWS ? shape->max_rows : PROBE_ROWS;
    uint32_t n_pages = (n_rows + PAGE_TOKENS - 1) / PAGE_TOKENS;
    struct stage_shape small = *shape;
    uint64_t layer[2], last[2];

    small.max_rows = n_rows;
    small.max_outputs = small.n_slots = 1;
    small.n_pages = small.max_pages = n_pages;
    small.history_stride = n_rows + 1;
    struct stage_plan plan = {
        .model = m, .device = d, .layers = { n_layers - 2, n_layers - 1 }, .shape = &small
    };
    if (!time_layers(&plan, n_rows, layer, err))
        return err_prefix(err, "probing %s", d->name);
    plan.layers = (struct layer_range){ n_layers - 1, n_layers };
    if (!time_layers(&plan, n_rows, last, err))
        return err_prefix(err, "probing %s", d->name);
    *speed = (struct probe_speed){ .n_rows = n_rows,
                                   .layer_ns = layer[0],
                                   .head_ns = last[0] > layer[0] ? last[0] - layer[0] : 0,
                                   .layer_prompt_ns = layer[1],
                                   .head_prompt_ns = last[1] > layer[1] ? last[1] - layer[1] : 0 };
    return true;
}
