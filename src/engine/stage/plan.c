// plan.c - see plan.h. A chain of layers over a row of devices: dynamic programming finds the optimum.
//
// least[d][j] is the least cost of layers [0, j) with device d as the last one in use; it follows from
// least[p][i] of all earlier devices p and all borders i < j.
#include "engine/stage/plan.h"
#include <stddef.h>
#include "base/log.h"
#include "base/mem.h"

struct plan_cell {
    uint64_t cost;
    uint32_t n_devices;      // in use
    uint32_t border, before; // where device d begins, and the device before it; itself: none
};

static bool is_better(const struct plan_cell *a, const struct plan_cell *b)
{
    return a->cost != b->cost ? a->cost < b->cost : a->n_devices < b->n_devices;
}

// Layers [i, j) on device d, behind the best that ends at i on an earlier device.
static struct plan_cell extend(const struct plan_cell *cells, const struct plan_costs *c, uint32_t d,
                               struct layer_range layers)
{
    uint64_t own = c->cost(c->arg, d, layers);
    struct plan_cell best = { PLAN_DOES_NOT_FIT, 0, 0, 0 };

    if (own == PLAN_DOES_NOT_FIT)
        return best;
    if (layers.first == 0)
        return (struct plan_cell){ own, 1, 0, d };
    for (uint32_t p = 0; p < d; p++) {
        const struct plan_cell *before = &cells[(size_t)p * (c->n_layers + 1) + layers.first];
        struct plan_cell cell = { before->cost + own, before->n_devices + 1, layers.first, p };
        if (before->cost != PLAN_DOES_NOT_FIT && is_better(&cell, &best))
            best = cell;
    }
    return best;
}

static void fill_cells(struct plan_cell *cells, const struct plan_costs *c)
{
    for (uint32_t d = 0; d < c->n_devices; d++)
        for (uint32_t j = 0; j <= c->n_layers; j++) {
            struct plan_cell *cell = &cells[(size_t)d * (c->n_layers + 1) + j];
            cell->cost = PLAN_DOES_NOT_FIT;
            for (uint32_t i = 0; i < j; i++) {
                struct plan_cell longer = extend(cells, c, d, (struct layer_range){ i, j });
                if (is_better(&longer, cell))
                    *cell = longer;
            }
        }
}

// From the last device back to the first.
static void read_back(const struct plan_cell *cells, const struct plan_costs *c, uint32_t last,
                      struct placement *p)
{
    uint32_t d = last, j = c->n_layers;

    p->n = cells[(size_t)last * (c->n_layers + 1) + j].n_devices;
    for (uint32_t s = p->n; s-- > 0;) {
        const struct plan_cell *cell = &cells[(size_t)d * (c->n_layers + 1) + j];
        p->layers[s] = (struct layer_range){ cell->border, j };
        p->device[s] = d;
        j = cell->border;
        d = cell->before;
    }
}

bool plan_choose(const struct plan_costs *costs, struct placement *p, uint64_t *sum, struct err *err)
{
    size_t n = (size_t)costs->n_devices * (costs->n_layers + 1);
    struct plan_cell *cells = mem_alloc_array(n, sizeof *cells), *best = NULL;

    *p = (struct placement){ 0 };
    *err = (struct err){ 0 };
    if (!cells)
        return err_memory(err, "a plan");
    fill_cells(cells, costs);
    for (uint32_t d = 0; d < costs->n_devices; d++) {
        struct plan_cell *cell = &cells[(size_t)d * (costs->n_layers + 1) + costs->n_layers];
        if (cell->cost != PLAN_DOES_NOT_FIT && (!best || is_better(cell, best)))
            best = cell;
    }
    if (best) {
        *sum = best->cost;
        read_back(cells, costs, (uint32_t)((size_t)(best - cells) / (costs->n_layers + 1)), p);
    }
    mem_free(cells);
    return best != NULL;
}

// ---- a model's layers

struct plan_sizes {
    const struct plan *plan;
    uint64_t scratch, tail, embed; // bytes; tail: norm, head and their scratch
    uint32_t n_layers;
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

    // Empty ranges: in the middle, at the front and at the end.
    s->scratch = range_bytes(r, 1, 1);
    s->embed = range_bytes(r, 0, 0) - s->scratch;
    s->tail = range_bytes(r, n, n) - s->scratch;
    for (uint32_t l = 0; l < n; l++)
        s->before[l + 1] = s->before[l] + range_bytes(r, l, l + 1) - s->scratch - (l == 0 ? s->embed : 0) -
                           (l + 1 == n ? s->tail : 0);
}

static uint64_t token_cost(const void *arg, uint32_t device, struct layer_range layers)
{
    const struct plan_sizes *s = arg;
    const struct probe_speed *speed = &s->plan->speed[device];
    bool last = layers.last == s->n_layers;
    uint64_t bytes = s->before[layers.last] - s->before[layers.first] + s->scratch +
                     (layers.first == 0 ? s->embed : 0) + (last ? s->tail : 0);

    if (bytes > s->plan->room[device])
        return PLAN_DOES_NOT_FIT;
    return (layers.last - layers.first) * speed->layer_ns + (last ? speed->head_ns : 0);
}

static bool probe_all(const struct plan_request *r, struct plan *plan, struct err *err)
{
    for (uint32_t i = 0; i < r->devices->n; i++) {
        struct device *d = r->devices->at[i];
        struct stage_shape shape = *r->shape;
        shape.exact |= devices_is_plain(d);
        plan->room[i] = place_room(d);
        snprintf(plan->names[i], sizeof plan->names[i], "%s", d->name);
        if (!probe_device(d, r->model, &shape, &plan->speed[i], err))
            return false;
    }
    return true;
}

static void predict(const struct plan_request *r, struct plan *plan)
{
    const struct placement *p = &plan->placement;
    const struct probe_speed *last = &plan->speed[p->device[p->n - 1]];

    plan->token_ns = last->head_ns;
    plan->prompt_ns = last->head_prompt_ns;
    for (uint32_t i = 0; i < p->n; i++) {
        const struct probe_speed *speed = &plan->speed[p->device[i]];
        uint64_t n = p->layers[i].last - p->layers[i].first;
        plan->token_ns += n * speed->layer_ns;
        plan->prompt_ns += n * speed->layer_prompt_ns;
        plan->need[i] = place_range_memory(r->model, r->shape, p->layers[i]);
        log_line(LOG_INFO, "plan", "layers %u to %u on %s", p->layers[i].first, p->layers[i].last - 1,
                 plan->names[p->device[i]]);
    }
}

static bool choose(const struct plan_request *r, struct plan *plan, struct err *err)
{
    struct plan_sizes *sizes = mem_alloc(sizeof *sizes);
    uint64_t sum;

    if (!sizes)
        return err_memory(err, "a plan");
    *sizes = (struct plan_sizes){ .plan = plan, .n_layers = r->model->config.n_layers };
    measure_sizes(r, sizes);
    struct plan_costs costs = { token_cost, sizes, r->devices->n, sizes->n_layers };
    bool ok = plan_choose(&costs, &plan->placement, &sum, err);
    mem_free(sizes);
    return ok;
}

// The most pages of this format that fit, up to those asked for.
static uint32_t most_pages(const struct plan_request *r, struct plan *plan, enum kv_format format)
{
    struct stage_shape shape = *r->shape;
    struct plan_request other = *r;
    uint32_t fit = 0, too_many = shape.n_pages + 1;
    struct err err;

    other.shape = &shape;
    shape.k_format = shape.v_format = format;
    while (too_many - fit > 1) {
        shape.n_pages = fit + (too_many - fit) / 2;
        if (choose(&other, plan, &err))
            fit = shape.n_pages;
        else
            too_many = shape.n_pages;
    }
    return fit;
}

// What is needed, each device's room, and what would fit.
static bool fits_nowhere(const struct plan_request *r, struct plan *plan, struct err *err)
{
    const double gib = 1 << 30;
    struct place_memory need = place_memory(r->model, r->shape);
    uint32_t same = most_pages(r, plan, r->shape->k_format), q8 = most_pages(r, plan, KV_Q8_0);
    char rooms[256] = "";
    size_t at = 0;

    for (uint32_t i = 0; i < r->devices->n && at < sizeof rooms; i++)
        at += (size_t)snprintf(rooms + at, sizeof rooms - at, "%s%s has %.2f", i ? ", " : "", plan->names[i],
                               (double)plan->room[i] / gib);
    err_set(err, ERR_MEMORY,
            "needs %.2f GiB (weights %.2f, KV pages of %u tokens %.2f) and %s; what fits: %u tokens in all, "
            "or %u "
            "with -ctk q8_0 -ctv q8_0",
            (double)sum_bytes(&need) / gib, (double)need.weights / gib, r->shape->n_pages * PAGE_TOKENS,
            (double)need.pages / gib, rooms, same * PAGE_TOKENS, q8 * PAGE_TOKENS);
    if (same == 0 && q8 == 0)
        err_set(err, ERR_MEMORY,
                "the weights need %.2f GiB and %s: use a smaller model or a smaller format of it, or more "
                "devices",
                (double)need.weights / gib, rooms);
    return false;
}

bool plan_layers(const struct plan_request *request, struct plan *plan, struct err *err)
{
    uint32_t n_layers = request->model->config.n_layers;

    *plan = (struct plan){ 0 };
    if (n_layers < 2 || n_layers > PLAN_MOST_LAYERS)
        return err_set(err, ERR_INPUT, "a plan for a model of %u layers; want 2 to %d", n_layers,
                       PLAN_MOST_LAYERS);
    if (!probe_all(request, plan, err))
        return false;
    if (request->pinned)
        plan->placement = *request->pinned;
    else if (!choose(request, plan, err))
        return err->code == ERR_NONE ? fits_nowhere(request, plan, err) : false;
    predict(request, plan);
    return true;
}
