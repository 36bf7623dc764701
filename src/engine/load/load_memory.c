// load_memory.c - see load_memory.h.
#include "engine/load/load_memory.h"
#include "base/err.h"
#include "base/log.h"
#include "engine/load/load_split.h"
#include "engine/stage/outline.h"
#include "engine/stage/ways.h"

static struct outline_request request_of(const struct engine_loaded *l, const struct stage_shape *shape)
{
    return (struct outline_request){ .model = &l->model,
                                     .devices = &l->devices,
                                     .shape = shape,
                                     .placement = &l->placement,
                                     .adapters = &l->adapters,
                                     .exact = l->options.exact };
}

static bool rank_needs(const struct engine_loaded *l, const struct stage_shape *shape,
                       struct load_needs *needs, struct err *err)
{
    struct layer_range all = { 0, l->model.config.n_layers };
    struct outline found;

    for (uint32_t i = 0; i < l->n_parts; i++) {
        struct placement p = { .layers = { all }, .device = { i }, .n = 1 };
        struct stage_shape own = load_split_shape(l, shape, i);
        struct outline_request r = request_of(l, &own);
        r.model = &l->parts[i];
        r.placement = &p;
        if (!outline_stages(&r, &found, err))
            return false;
        needs->stages[i] = place_range_memory(&l->parts[i], &own, all);
        needs->stages[i].scratch =
            found.scratch[0] + needs->stages[i].tower_scratch + load_split_inbox(l, shape, i);
    }
    needs->n = l->n_parts;
    return true;
}

bool load_memory_needs(const struct engine_loaded *l, const struct stage_shape *shape,
                       struct load_needs *needs, struct err *err)
{
    const struct placement *p = &l->placement;
    struct outline_request r = request_of(l, shape);
    struct outline found;

    *needs = (struct load_needs){ .n = p->n };
    if (l->n_parts)
        return rank_needs(l, shape, needs, err);
    if (!outline_stages(&r, &found, err))
        return false;
    for (uint32_t i = 0; i < p->n; i++) {
        needs->stages[i] = place_range_memory(&l->model, shape, p->layers[i]);
        needs->stages[i].scratch = found.scratch[i] + needs->stages[i].tower_scratch;
        needs->experts[i] = place_experts_memory(&l->model, shape, p->layers[i]);
        needs->experts[i].scratch = found.experts[i];
    }
    if (p->n == 1 && !l->remote)
        needs->stages[0].weights = place_memory(&l->model, shape, l->devices.at[p->device[0]]).weights;
    return true;
}

static void add_on(struct place_memory *sum, const struct place_memory *need, const struct device *on,
                   const struct device *device)
{
    if (!on || (device && !devices_share_memory(device, on)))
        return;
    sum->weights += need->weights;
    sum->pages += need->pages;
    sum->scratch += need->scratch;
    sum->tower_weights += need->tower_weights;
    sum->tower_scratch += need->tower_scratch;
    sum->far += need->far;
    sum->copied += on->can_use_file ? need->copied : need->weights;
}

struct place_memory load_memory_sum(const struct engine_loaded *l, const struct load_needs *needs,
                                    const struct device *device)
{
    struct place_memory sum = { 0 };

    for (uint32_t i = 0; i < needs->n; i++) {
        add_on(&sum, &needs->stages[i], l->devices.at[l->n_parts ? i : l->placement.device[i]], device);
        add_on(&sum, &needs->experts[i], l->devices.experts, device);
    }
    return sum;
}

// Adds to the message what would fit.
static bool say_ways(const struct engine_loaded *l, const struct stage_shape *shape, struct err *err)
{
    struct err why = *err;
    struct outline_request r = request_of(l, shape);
    char ways[WAYS_BYTES];
    uint64_t room[MAX_DEVICES];

    if (l->remote)
        return err_set(err, why.code, "%s; use more ranks, other %s, or a smaller model", why.message,
                       err_option("stages"));
    if (l->n_parts)
        return err_set(err, why.code, "%s; use more ranks, or a smaller model", why.message);
    struct ways_request asked = ways_request_of(&l->devices, &l->model, shape, room);
    asked.outline = &r;
    ways_out(&asked, ways);
    return err_set(
        err, why.code, "%s; %s%s%s", why.message, *ways ? "what fits: " : "use a smaller model", ways,
        devices_may_have_more(&l->devices) ? "; 'ingot doctor' says how the system gives its GPU more" : "");
}

static bool all_fit(const struct engine_loaded *l, const struct stage_shape *shape,
                    const struct load_needs *needs, struct err *err)
{
    for (uint32_t i = 0; i < l->devices.n + (l->devices.experts != NULL); i++) {
        struct device *d = i < l->devices.n ? l->devices.at[i] : l->devices.experts;
        struct place_memory need = load_memory_sum(l, needs, d);
        if (!place_check(&need, d, shape->memory_share, err))
            return false;
    }
    return true;
}

bool load_memory_fits(const struct engine_loaded *l, struct stage_shape *shape, struct err *err)
{
    struct load_needs needs;
    bool drafts = shape->drafts;

    if (!load_memory_needs(l, shape, &needs, err))
        return false;
    if (all_fit(l, shape, &needs, err))
        return true;
    shape->drafts = false;
    if (!drafts || !load_memory_needs(l, shape, &needs, err) || !all_fit(l, shape, &needs, err))
        return say_ways(l, shape, err);
    log_line(LOG_INFO, "load", "no memory for the layer that drafts tokens; it is left out");
    return true;
}
