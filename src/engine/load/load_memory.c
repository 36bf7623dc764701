// load_memory.c - see load_memory.h.
#include "engine/load/load_memory.h"
#include "base/log.h"
#include "engine/load/load_split.h"
#include "engine/stage/ways.h"

void load_memory_add(struct place_memory *sum, struct place_memory need, const struct device *d)
{
    sum->weights += need.weights;
    sum->pages += need.pages;
    sum->scratch += need.scratch;
    sum->copied += d->can_use_file ? need.copied : need.weights;
}

// The memory that the stages on a device, and on devices that share its memory, need together.
static struct place_memory memory_on(const struct engine_loaded *l, const struct stage_shape *shape,
                                     const struct device *device)
{
    const struct placement *p = &l->placement;
    struct place_memory sum = { 0 };

    if (l->n_parts)
        return load_split_memory(l, shape, device);
    if (l->devices.n == 1 && !l->remote && devices_share_memory(device, l->devices.at[0]))
        load_memory_add(&sum, place_memory(&l->model, shape), l->devices.at[0]);
    for (uint32_t i = 0; i < p->n && (l->devices.n > 1 || l->remote); i++)
        if (devices_share_memory(device, l->devices.at[p->device[i]]))
            load_memory_add(&sum, place_range_memory(&l->model, shape, p->layers[i]),
                            l->devices.at[p->device[i]]);
    for (uint32_t i = 0; i < p->n; i++)
        if (l->devices.experts && devices_share_memory(device, l->devices.experts))
            load_memory_add(&sum, place_experts_memory(&l->model, shape, p->layers[i]), l->devices.experts);
    return sum;
}

// Adds to the message what would fit.
static bool say_ways(const struct engine_loaded *l, const struct stage_shape *shape, struct err *err)
{
    struct err why = *err;
    char ways[WAYS_BYTES];

    if (l->remote)
        return err_set(err, why.code, "%s; use more ranks, other --stages, or a smaller model", why.message);
    if (l->n_parts)
        return err_set(err, why.code, "%s; use more ranks, or a smaller model", why.message);
    ways_of(&l->devices, &l->model, shape, ways);
    return err_set(err, why.code, "%s; %s%s", why.message, *ways ? "what fits: " : "use a smaller model",
                   ways);
}

static bool all_fit(const struct engine_loaded *l, const struct stage_shape *shape, struct err *err)
{
    for (uint32_t i = 0; i < l->devices.n + (l->devices.experts != NULL); i++) {
        struct device *d = i < l->devices.n ? l->devices.at[i] : l->devices.experts;
        struct place_memory need = memory_on(l, shape, d);
        if (!place_check(&need, d, shape->memory_share, err))
            return false;
    }
    return true;
}

bool load_memory_fits(const struct engine_loaded *l, struct stage_shape *shape, struct err *err)
{
    bool drafts = shape->drafts;

    if (all_fit(l, shape, err))
        return true;
    shape->drafts = false;
    if (!drafts || !all_fit(l, shape, err))
        return say_ways(l, shape, err);
    log_line(LOG_INFO, "load", "no memory for the layer that drafts tokens; it is left out");
    return true;
}
