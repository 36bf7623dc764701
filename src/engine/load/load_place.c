// load_place.c - see load_place.h.
#include "engine/load/load_place.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/options.h"
#include "engine/kv_persist.h"
#include "engine/load/load_check.h"
#include "engine/load/load_eyes.h"
#include "engine/load/load_memory.h"
#include "engine/load/load_shape.h"
#include "engine/stage/place_ranks.h"
#include "engine/stage/remote.h"
#include "engine/stage/ways.h"
#include "models/arch.h"

enum { SEQUENCES_OF_ONE = 2 }; // with more, layers are placed for many

// What the ranks' options must leave out.
static bool check_ranks(const struct engine_loaded *l, struct err *err)
{
    uint32_t n = ranks_n(l->remote->ranks);

    if (l->devices.n > 1)
        return err_set(err, ERR_INPUT, "%s names %u devices; a rank takes one: start a rank for each of them",
                       err_option("device"), l->devices.n);
    if (l->options.cache_dir)
        return err_set(err, ERR_UNSUPPORTED,
                       "%s does not work with several ranks yet, since each has the pages of its own "
                       "layers; leave it out",
                       err_option("cache_dir"));
    return n <= l->model.config.n_layers ||
           err_set(err, ERR_INPUT, "%u ranks for a model of %u layer%s; want a rank for a layer at most", n,
                   l->model.config.n_layers, str_plural(l->model.config.n_layers));
}

// This rank's part of them is the engine's placement.
static bool choose_ranks(struct engine_loaded *l, struct stage_shape *shape, struct err *err)
{
    struct stage_shape own = *shape;

    own.n_away = 0;
    if (!check_ranks(l, err) || !place_ranks(&l->remote->placement, l->options.stages, &l->model, &own,
                                             ranks_n(l->remote->ranks), err))
        return false;
    l->placement = (struct placement){ .layers = { remote_layers(l->remote) }, .n = 1 };
    shape->exact = load_is_exact(l, 0);
    return true;
}

static bool has_borders(const struct engine_loaded *l)
{
    return l->options.stages && *l->options.stages;
}

static bool is_for_many(const struct engine_loaded *l)
{
    const struct ingot_engine_options *o = &l->options;

    return o->aim == INGOT_FOR_MANY || (o->aim == INGOT_FOR_AUTO && o->n_sequences > SEQUENCES_OF_ONE);
}

// The placement was chosen. What keeps a stage from being made is told when memory is checked.
static bool fits_placed(const struct engine_loaded *l, const struct stage_shape *shape)
{
    struct load_needs needs;
    struct err untold;
    bool fits = true;

    if (!load_memory_needs(l, shape, &needs, &untold))
        return true;
    for (uint32_t i = 0; i < l->devices.n; i++) {
        struct device *d = l->devices.at[i];
        struct place_memory need = load_memory_sum(l, &needs, d);
        fits &= need.weights + need.pages + need.scratch <= place_room(d, shape->memory_share);
    }
    return fits;
}

// Whether memory holds all of it: exact where the placement is known, which is then set; a rough sum where
// several devices divide the layers. A CPU always passes: its memory is checked later (load_memory_fits).
static bool has_room(struct engine_loaded *l, const struct stage_shape *shape)
{
    uint32_t n_layers = l->model.config.n_layers;
    bool divided = has_borders(l);
    uint64_t room[MAX_DEVICES];
    struct err untold;

    if (!l->devices.at[0]->queue)
        return true;
    if (l->devices.n == 1 || l->n_parts || divided)
        return !place_stages(&l->placement, divided ? l->options.stages : NULL, n_layers,
                             l->n_parts ? 1 : l->devices.n, &untold) ||
               fits_placed(l, shape);
    struct ways_request all = ways_request_of(&l->devices, &l->model, shape, room);
    return ways_fit(&all);
}

// An encoder's step holds its longest text.
static struct stage_shape with_least_rows(const struct engine *e, const struct stage_shape *shape)
{
    const struct engine_loaded *l = e->loaded;
    uint32_t text = l->model.arch->is_encoder ? l->n_context : 0,
             least = text > LOAD_LEAST_ROWS ? text : LOAD_LEAST_ROWS;
    struct stage_shape fewer = *shape;

    if (l->options.n_batch || shape->max_rows <= least)
        return fewer;
    fewer.max_rows = least;
    fewer.max_outputs = shape->max_outputs < least ? shape->max_outputs : least;
    fewer.n_windows = place_windows(&l->model, &fewer, e->kv.prefix != NULL);
    return fewer;
}

// Per-layer embeddings (Gemma 4 E2B and E4B) go to pinned host memory if the model does not fit the GPU
// otherwise: a step reads few rows of them. It costs loading time and 1.6 % of a prompt
// (bench/results/2026-11-29-h200-models.md), so they stay in GPU memory where everything fits.
static void choose_far_rows(struct engine_loaded *l, struct stage_shape *shape,
                            const struct stage_shape *fewer)
{
    struct stage_shape far = *shape;

    far.far_rows = true;
    uint64_t bytes = place_range_memory(&l->model, &far, (struct layer_range){ 0, 0 }).far;
    shape->far_rows = l->devices.n == 1 && bytes > 0 && bytes <= devices_host_bytes(&l->devices) &&
                      !has_room(l, shape) && !has_room(l, fewer);
}

bool load_rows_choose(struct engine *e, struct stage_shape *shape, bool *fits, struct err *err)
{
    struct engine_loaded *l = (struct engine_loaded *)(uintptr_t)e->loaded;
    struct stage_shape fewer = with_least_rows(e, shape);
    uint32_t n_devices = l->devices.n;

    choose_far_rows(l, shape, &fewer);
    fewer.far_rows = shape->far_rows;
    *fits = has_room(l, shape);
    if (!has_borders(l) && l->devices.is_found && (is_for_many(l) || (!*fits && !has_room(l, &fewer))))
        devices_add_gpus(&l->devices);
    if (l->devices.n > n_devices)
        *fits = has_room(l, shape);
    if (*fits || fewer.max_rows == shape->max_rows)
        return true;
    log_line(LOG_INFO, "load", "no memory for steps of %u rows; they have %u", shape->max_rows,
             fewer.max_rows);
    *shape = fewer;
    *fits = has_room(l, shape);
    l->max_rows = shape->max_rows;
    l->max_outputs = shape->max_outputs;
    kv_release(&e->kv);
    return load_kv_make(e, err);
}

static bool make_plan(struct engine_loaded *l, const struct stage_shape *shape, const struct place_ask *ask,
                      struct plan *plan, struct err *err)
{
    char path[4096];
    struct sha256 digest;
    struct stage_shape own = *shape;
    bool is_placed = has_borders(l) || (l->devices.n == 1 && l->devices.at[0]->queue && has_room(l, shape));

    if (has_borders(l) &&
        !place_stages(&l->placement, l->options.stages, l->model.config.n_layers, l->devices.n, err))
        return false;
    if (!kv_persist_identity_of_file(l->file, &digest, err))
        return false;
    own.exact = l->options.exact;
    struct plan_request r = { .model = &l->model,
                              .devices = &l->devices,
                              .shape = &own,
                              .pinned = is_placed ? &l->placement : NULL,
                              .many = is_for_many(l),
                              .depth = ask->depth,
                              .limits = ask->plan != NULL,
                              .no_repack = l->options.no_repack,
                              .probe_anew = l->options.probe_anew,
                              .digest = &digest };
    r.cache = probe_cache_open(options_cache_path("probes.json", path, sizeof path) ? path : NULL);
    bool ok = plan_layers(&r, plan, err);
    probe_cache_close(r.cache);
    if (ok)
        l->placement = plan->placement;
    return ok;
}

// What else the layers could use where they do not fit.
enum place_way { WAY_NONE, WAY_EXPERTS, WAY_CPU };

static bool take_way(struct engine *e, enum place_way way, uint32_t n_away, struct stage_shape *shape,
                     struct err *err)
{
    struct engine_loaded *l = (struct engine_loaded *)(uintptr_t)e->loaded;
    bool ok = way == WAY_CPU ? devices_add_cpu(&l->devices, &l->options, err)
                             : devices_add_experts(&l->devices, &l->options, STR("cpu"), n_away, err);
    uint64_t eyes[2] = { shape->eyes_weights, shape->eyes_scratch };

    ok = ok && load_check_devices(l, err) && load_shape_choose(e, shape, err);
    shape->eyes_weights = eyes[0];
    shape->eyes_scratch = eyes[1];
    return ok;
}

static void leave_way(struct engine_loaded *l, enum place_way way)
{
    if (way == WAY_EXPERTS)
        devices_remove_experts(&l->devices);
    else if (l->devices.n > 1 && !l->devices.at[l->devices.n - 1]->queue)
        devices_remove(&l->devices, l->devices.n - 1);
}

static uint64_t aim_ns(const struct plan *p)
{
    return p->many ? p->many_ns : p->token_ns;
}

// The faster one of what fits with the host's memory: experts there, or layers, if nobody named the devices.
// *plan is that of the way which is taken. False: there is none.
static bool plan_wider(struct engine *e, struct stage_shape *shape, const struct place_ask *ask,
                       struct plan *plan)
{
    struct engine_loaded *l = (struct engine_loaded *)(uintptr_t)e->loaded;
    uint64_t room[MAX_DEVICES], best_ns = UINT64_MAX;
    struct ways_request ways = ways_request_of(&l->devices, &l->model, shape, room);
    bool asked = l->options.experts && *l->options.experts;
    uint32_t n_away = asked ? 0 : ways_fewest_away(&ways);
    bool may[] = { [WAY_EXPERTS] = n_away > 0, [WAY_CPU] = l->devices.is_found && ways.host_bytes > 0 };
    enum place_way best = WAY_NONE;
    struct err why;

    for (enum place_way way = WAY_EXPERTS; way <= WAY_CPU; way++) {
        struct stage_shape wide = *shape;
        if (may[way] && take_way(e, way, n_away, &wide, &why) && make_plan(l, &wide, ask, plan, &why) &&
            aim_ns(plan) < best_ns) {
            best = way;
            best_ns = aim_ns(plan);
        }
        leave_way(l, way);
    }
    if (best == WAY_NONE || !take_way(e, best, n_away, shape, &why) || !make_plan(l, shape, ask, plan, &why))
        return false;
    if (best == WAY_EXPERTS)
        log_line(LOG_WARN, "place",
                 "%s has no room for all: the experts of the last %u layer%s stay in the host's memory "
                 "(%s cpu:%u; none refuses instead)",
                 l->devices.at[0]->name, n_away, str_plural(n_away), err_option("experts"), n_away);
    else
        log_line(LOG_WARN, "place", "%s has no room for all: the processor computes layers %u to %u",
                 l->devices.at[0]->name, l->placement.layers[l->placement.n - 1].first,
                 l->model.config.n_layers - 1);
    return true;
}

// Found devices that get nothing are closed, so that others can have them.
static void close_unused(struct engine_loaded *l)
{
    struct placement *p = &l->placement;

    for (uint32_t d = l->devices.n; d-- > 0;) {
        bool used = false;
        for (uint32_t i = 0; i < p->n; i++)
            used |= p->device[i] == d;
        if (used)
            continue;
        devices_remove(&l->devices, d);
        for (uint32_t i = 0; i < p->n; i++)
            p->device[i] -= p->device[i] > d;
    }
}

static bool choose_devices(struct engine *e, struct stage_shape *shape, const struct place_ask *ask,
                           struct plan *plan, struct err *err)
{
    struct engine_loaded *l = (struct engine_loaded *)(uintptr_t)e->loaded;
    bool pinned = has_borders(l), fits;

    if (!load_rows_choose(e, shape, &fits, err) || !load_check_devices(l, err))
        return false;
    if (l->n_parts)
        return place_stages(&l->placement, NULL, l->model.config.n_layers, 1, err);
    bool alone = l->devices.n == 1 && !ask->plan;
    if (!ask->plan && (pinned || (alone && fits)))
        return place_stages(&l->placement, l->options.stages, l->model.config.n_layers, l->devices.n, err);
    if (!alone && make_plan(l, shape, ask, plan, err))
        return true;
    if (pinned || (!alone && err->code != ERR_MEMORY))
        return false;
    if (plan_wider(e, shape, ask, plan))
        return true;
    // refused when memory is checked, with what would fit
    return alone && place_stages(&l->placement, NULL, l->model.config.n_layers, 1, err);
}

bool load_places_choose(struct engine *e, struct stage_shape *shape, const struct place_ask *ask,
                        struct err *err)
{
    struct engine_loaded *l = (struct engine_loaded *)(uintptr_t)e->loaded;

    if (l->remote)
        return choose_ranks(l, shape, err);
    struct plan *plan = ask->plan ? ask->plan : mem_alloc(sizeof *plan);
    if (!plan)
        return err_memory(err, "a plan");
    if (l->devices.n > 1 || l->devices.at[0]->queue || ask->plan)
        load_eyes_count(l, shape);
    bool ok = choose_devices(e, shape, ask, plan, err) && place_borders_fit(&l->placement, &l->model, err);
    if (!ask->plan) {
        shape->eyes_weights = shape->eyes_scratch = 0; // they count themselves when they are opened
        mem_free(plan);
        if (ok && l->devices.is_found)
            close_unused(l);
        l->devices.is_found = false; // from now on
    }
    if (ok && shape->far_rows)
        log_line(LOG_INFO, "place",
                 "%s has no room for all: the table of the layers' inputs is in the host's memory",
                 l->devices.at[0]->name);
    shape->exact = ok && load_is_exact(l, l->placement.device[0]);
    return ok;
}
