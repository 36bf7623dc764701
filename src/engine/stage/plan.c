// plan.c - see plan.h.
#include "engine/stage/plan.h"
#include <stddef.h>
#include "base/log.h"
#include "base/mem.h"
#include "engine/stage/away.h"
#include "engine/stage/batch.h"
#include "engine/stage/ways.h"

enum { LATENCY_BYTES = 4096 }; // that a link's latency was measured with

struct plan_sizes {
    const struct plan *plan;
    const struct model *model;
    bool many; // what counts
    uint32_t n_away;
    uint64_t whole[MAX_DEVICES];   // bytes, of all layers on a device
    uint64_t scratch, tail, embed; // bytes; tail: norm, head and their scratch
    uint32_t n_layers;
    bool may_begin[PLAN_MOST_LAYERS];      // a stage, there
    uint64_t before[PLAN_MOST_LAYERS + 1]; // of weights and pages of the layers before
};

static uint64_t sum_bytes(const struct place_memory *m)
{
    return m->weights + m->pages + m->scratch;
}

static uint64_t range_bytes(const struct plan_request *r, uint32_t first, uint32_t last)
{
    struct place_memory need = place_range_memory(r->model, r->shape, (struct layer_range){ first, last });

    return sum_bytes(&need);
}

static void measure_sizes(const struct plan_request *r, struct plan_sizes *s)
{
    uint32_t n = s->n_layers;

    for (uint32_t d = 0; d < r->devices->n; d++) {
        struct place_memory whole = place_memory(r->model, r->shape, r->devices->at[d]);
        s->whole[d] = sum_bytes(&whole);
    }
    for (uint32_t l = 0; l < n; l++)
        s->may_begin[l] = place_border_fits(r->model, l);
    // Empty ranges: in the middle, at the front and at the end.
    s->scratch = range_bytes(r, 1, 1);
    s->embed = range_bytes(r, 0, 0) - s->scratch;
    s->tail = range_bytes(r, n, n) - s->scratch;
    for (uint32_t l = 0; l < n; l++)
        s->before[l + 1] = s->before[l] + range_bytes(r, l, l + 1) - s->scratch - (l == 0 ? s->embed : 0) -
                           (l + 1 == n ? s->tail : 0);
}

// Of layers, of which the last n_away of the model have their experts elsewhere.
static uint64_t layers_ns(const struct model *m, uint32_t n_away, struct layer_range layers,
                          uint64_t layer_ns, uint64_t away_ns)
{
    struct layer_range away = away_layers(m, n_away, layers);
    uint64_t n = n_away ? away.last - away.first : 0;

    return (layers.last - layers.first - n) * layer_ns + n * away_ns;
}

// Of a stage on a device, in a step.
static uint64_t range_ns(const struct plan_sizes *s, uint32_t device, struct layer_range layers,
                         enum probe_step step)
{
    const struct probe_part *part = &s->plan->speed[device].at[step];

    return part->stage_ns + layers_ns(s->model, s->n_away, layers, part->layer_ns, part->away_ns) +
           (layers.last == s->n_layers ? part->head_ns : 0);
}

// Of the sequences' rows that a step has where n_steps are on their way.
static double rows_of(const struct plan *p, uint32_t n_steps)
{
    double rows = (double)p->n_many / n_steps;

    return rows > 1 ? rows : 1;
}

// On the lines through a stage's times for the rows of the probes' steps.
static uint64_t many_ns(const struct plan_sizes *s, uint32_t device, struct layer_range layers,
                        uint32_t n_steps)
{
    const uint32_t *n = s->plan->n_rows;
    double rows = rows_of(s->plan, n_steps);
    bool few = rows < n[PROBE_HALF];
    enum probe_step fewer = few ? PROBE_ONE : PROBE_HALF, more = few ? PROBE_HALF : PROBE_MANY;
    uint64_t from = range_ns(s, device, layers, fewer), to = range_ns(s, device, layers, more);

    if (n[fewer] == n[more] || to < from)
        return to;
    return from + (uint64_t)((double)(to - from) * (rows - n[fewer]) / (n[more] - n[fewer]));
}

static uint64_t rows_link_ns(const struct plan_sizes *s, uint32_t from, uint32_t to, double n_rows)
{
    const struct probe_link *link = &s->plan->links[from][to];
    double bytes = 4.0 * n_rows * s->model->config.n_cols, more = bytes - LATENCY_BYTES;

    if (link->bytes <= 0)
        return 0;
    return (uint64_t)(link->latency_ns + (more > 0 ? more / link->bytes * 1e9 : 0));
}

static uint64_t step_cost(const void *arg, uint32_t device, struct layer_range layers, uint32_t n_steps)
{
    const struct plan_sizes *s = arg;
    bool first = layers.first == 0, last = layers.last == s->n_layers;
    uint64_t bytes = s->before[layers.last] - s->before[layers.first] + s->scratch + (first ? s->embed : 0) +
                     (last ? s->tail : 0);

    if (!s->may_begin[layers.first] || (first && last ? s->whole[device] : bytes) > s->plan->room[device])
        return PLAN_DOES_NOT_FIT;
    return s->many ? many_ns(s, device, layers, n_steps) : range_ns(s, device, layers, PROBE_ONE);
}

static uint64_t step_link(const void *arg, uint32_t from, uint32_t to, uint32_t n_steps)
{
    const struct plan_sizes *s = arg;

    return rows_link_ns(s, from, to, s->many ? rows_of(s->plan, n_steps) : 1);
}

static bool probe_one(const struct plan_request *r, const struct probe_request *probe,
                      struct probe_speed *speed, uint32_t *n_probed, struct err *err)
{
    struct sha256 key = { 0 };

    if (r->cache && r->digest) {
        key = probe_cache_key(probe, r->digest);
        if (!r->probe_anew && probe_cache_find(r->cache, &key, speed) &&
            (!probe->limits || speed->limits.operations > 0))
            return true;
    }
    if (!probe_device(probe, speed, err))
        return false;
    (*n_probed)++;
    if (r->cache && r->digest)
        probe_cache_put(r->cache, &key, speed);
    return true;
}

static bool probe_all(const struct plan_request *r, struct plan *plan, struct err *err)
{
    for (uint32_t i = 0; i < r->devices->n; i++) {
        struct device *d = r->devices->at[i];
        struct stage_shape shape = *r->shape;
        shape.exact |= devices_is_plain(d);
        plan->room[i] = place_room(d, shape.memory_share);
        snprintf(plan->names[i], sizeof plan->names[i], "%s", d->name);
        bool limits = r->limits && !devices_is_plain(d); // a product by plain loops takes a minute
        struct probe_request probe = { d,      r->devices->experts, r->model, &shape, r->depth,
                                       limits, r->no_repack };
        if (probe_one(r, &probe, &plan->speed[i], &plan->n_probed, err))
            continue;
        if (err->code != ERR_MEMORY || r->pinned)
            return false;
        log_line(LOG_INFO, "plan", "%s is left out: %s", d->name, err->message);
        plan->room[i] = 0;
    }
    memcpy(plan->n_rows, plan->speed[0].n_rows, sizeof plan->n_rows);
    plan->n_many = probe_n_many(r->shape);
    return true;
}

static bool probe_link(const struct plan_request *r, struct plan *plan, uint32_t from, uint32_t to,
                       struct err *err)
{
    struct device *a = r->devices->at[from], *b = r->devices->at[to];
    struct probe_link *link = &plan->links[from][to];
    struct sha256 key;

    if (!a->queue && !b->queue)
        return true;
    key = probe_cache_link_key(a, b);
    if (!r->probe_anew && probe_cache_find_link(r->cache, &key, link))
        return true;
    if (!probe_links(a, b, link, err))
        return false;
    probe_cache_put_link(r->cache, &key, link);
    return true;
}

static bool probe_pairs(const struct plan_request *r, struct plan *plan, struct err *err)
{
    for (uint32_t to = 1; to < r->devices->n; to++)
        for (uint32_t from = 0; from < to; from++)
            if (!probe_link(r, plan, from, to, err))
                return false;
    return true;
}

// As engine_load lets steps be on their way at once: stages have threads, or all devices go on by themselves
// and send to each other.
static bool can_overlap(const struct plan_request *r)
{
    const struct devices *d = r->devices;

    if (r->shape->overlaps)
        return true;
    for (uint32_t i = 0; i < d->n; i++)
        if (!d->at[i]->queue || (i > 0 && !device_can_send(d->at[i - 1], d->at[i])))
            return false;
    return d->n > 1 && r->shape->n_away == 0;
}

static bool make_sizes(const struct plan_request *r, const struct plan *plan, struct plan_sizes **sizes,
                       struct err *err)
{
    struct plan_sizes *s = mem_alloc(sizeof *s);

    *sizes = s;
    if (!s)
        return err_memory(err, "a plan");
    *s = (struct plan_sizes){ .plan = plan,
                              .model = r->model,
                              .many = r->many,
                              .n_away = r->shape->n_away,
                              .n_layers = r->model->config.n_layers };
    measure_sizes(r, s);
    return true;
}

// As many steps as sequences at most, and as there are places to fetch their results from.
static uint32_t most_steps(const struct plan *plan, uint32_t n_stages)
{
    uint32_t n = plan->overlaps ? n_stages : 1, n_shares = plan->n_many / plan->least_share;

    n = n < MOST_FLIGHTS ? n : MOST_FLIGHTS;
    n_shares = n_shares ? n_shares : 1;
    return n < n_shares ? n : n_shares;
}

// Threads of stages keep the rows together where that is shorter.
static bool may_add_up(const struct plan *plan)
{
    return plan->overlaps && plan->least_share > 1;
}

// Until every sequence has a token more: n_steps steps go through all stages, one behind the other.
static uint64_t round_ns(const struct plan *plan, const struct plan_sizes *s, uint32_t n_steps)
{
    const struct placement *p = &plan->placement;
    uint64_t sum = 0, slowest = 0;

    for (uint32_t i = 0; i < p->n; i++) {
        uint64_t own = many_ns(s, p->device[i], p->layers[i], n_steps),
                 link = i + 1 < p->n ? rows_link_ns(s, p->device[i], p->device[i + 1], rows_of(plan, n_steps))
                                     : 0;
        sum += own + link;
        slowest = own > slowest ? own : slowest;
        slowest = link > slowest ? link : slowest;
    }
    return n_steps * slowest > sum ? n_steps * slowest : sum;
}

static void predict(const struct plan_request *r, struct plan *plan, const struct plan_sizes *sizes)
{
    const struct placement *p = &plan->placement;
    uint64_t sums[N_PROBE_STEPS] = { 0 };

    for (uint32_t i = 0; i < p->n; i++) {
        plan->need[i] = place_range_memory(r->model, r->shape, p->layers[i]);
        for (uint32_t k = 0; k < N_PROBE_STEPS; k++) {
            plan->stage_ns[i][k] = range_ns(sizes, p->device[i], p->layers[i], (enum probe_step)k);
            if (i + 1 < p->n)
                plan->link_ns[i][k] = rows_link_ns(sizes, p->device[i], p->device[i + 1], plan->n_rows[k]);
            sums[k] += plan->stage_ns[i][k] + plan->link_ns[i][k];
        }
        uint64_t step = plan->stage_ns[i][PROBE_PROMPT], link = plan->link_ns[i][PROBE_PROMPT];
        step = step > link ? step : link;
        plan->long_prompt_ns = step > plan->long_prompt_ns ? step : plan->long_prompt_ns;
    }
    if (!plan->overlaps)
        plan->long_prompt_ns = sums[PROBE_PROMPT];
    plan->token_ns = sums[PROBE_ONE];
    plan->prompt_ns = sums[PROBE_PROMPT];
    plan->many_ns = round_ns(plan, sizes, most_steps(plan, p->n));
    uint64_t together = may_add_up(plan) ? round_ns(plan, sizes, 1) : UINT64_MAX;
    plan->many_ns = together < plan->many_ns ? together : plan->many_ns;
}

// What is needed, each device's room, and what would fit.
static bool fits_nowhere(const struct plan_request *r, const struct plan *plan, struct err *err)
{
    const double gib = 1 << 30;
    struct place_memory need = place_memory(r->model, r->shape, r->devices->at[0]);
    char rooms[160] = "", ways[WAYS_BYTES];
    uint64_t room[MAX_DEVICES];
    struct ways_request asked = ways_request_of(r->devices, r->model, r->shape, room);
    size_t at = 0;

    for (uint32_t i = 0; i < r->devices->n && at < sizeof rooms; i++)
        at += (size_t)snprintf(rooms + at, sizeof rooms - at, "%s%s has %.2f", i ? ", " : "", plan->names[i],
                               (double)room[i] / gib);
    ways_out(&asked, ways);
    return err_set(err, ERR_MEMORY, "needs %.2f GiB (weights %.2f, KV pages of %u tokens %.2f) and %s; %s%s",
                   (double)sum_bytes(&need) / gib, (double)need.weights / gib,
                   r->shape->n_pages * PAGE_TOKENS, (double)need.pages / gib, rooms,
                   *ways ? "what fits: " : "use a smaller model, or more devices", ways);
}

bool plan_layers(const struct plan_request *request, struct plan *plan, struct err *err)
{
    uint32_t n_layers = request->model->config.n_layers;
    struct plan_sizes *sizes;
    uint64_t cost;

    *plan = (struct plan){ .many = request->many, .depth = request->depth, .n_away = request->shape->n_away };
    if (n_layers < 2)
        return err_set(err, ERR_INPUT,
                       "the model has one layer, and nothing to divide among devices; name one device");
    if (n_layers > PLAN_MOST_LAYERS)
        return err_set(err, ERR_INPUT, "a plan for a model of %u layers; want 2 to %d", n_layers,
                       PLAN_MOST_LAYERS);
    if (!probe_all(request, plan, err) || !probe_pairs(request, plan, err) ||
        !make_sizes(request, plan, &sizes, err))
        return false;
    plan->overlaps = can_overlap(request);
    plan->least_share = request->shape->overlaps ? SHARE_ROWS : 1;
    struct plan_costs costs = { .cost = step_cost,
                                .link = step_link,
                                .arg = sizes,
                                .n_devices = request->devices->n,
                                .n_layers = n_layers,
                                .most_steps = request->many ? most_steps(plan, MAX_DEVICES) : 1,
                                .may_add_up = may_add_up(plan) };
    bool ok = true;
    if (request->pinned)
        plan->placement = *request->pinned;
    else if (!plan_choose(&costs, &plan->placement, &cost, err))
        ok = err->code == ERR_NONE ? fits_nowhere(request, plan, err) : false;
    if (ok)
        predict(request, plan, sizes);
    mem_free(sizes);
    return ok;
}

struct plan_bound plan_bound(const struct plan *p, uint32_t stage)
{
    const struct probe_speed *speed = &p->speed[p->placement.device[stage]];
    const struct layer_range *layers = &p->placement.layers[stage];
    double n = layers->last - layers->first, last = stage + 1 == p->placement.n;
    double link = (double)p->link_ns[stage][PROBE_ONE], ns = (double)p->stage_ns[stage][PROBE_ONE] + link;
    const struct device_limits *l = &speed->limits;
    struct probe_work work = { n * speed->layer.bytes + last * speed->head.bytes,
                               n * speed->layer.operations + last * speed->head.operations,
                               n * speed->layer.commands + last * speed->head.commands };
    const struct plan_bound all[] = {
        { "memory", l->read_bytes > 0 ? work.bytes / l->read_bytes * 1e9 : 0 },
        { "arithmetic", l->operations > 0 ? work.operations / l->operations * 1e9 : 0 },
        { "launch", work.commands * l->command_ns },
        { "link", link },
    };
    struct plan_bound most = { "-", 0 };

    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        most = all[k].percent > most.percent ? all[k] : most;
    most.percent = ns > 0 ? 100 * most.percent / ns : 0;
    return most;
}
