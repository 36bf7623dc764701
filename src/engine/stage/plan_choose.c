// plan_choose.c - see plan_choose.h. A chain of layers over a row of devices: dynamic programming finds the
// optimum.
//
// least[n][d][j] is the least cost of layers [0, j) in n + 1 stages, the last of them on device d; it follows
// from least[n - 1][p][i] of all earlier devices p and all borders i < j. Stages that compute at the same
// time share the rows, so that what each costs depends on their number: one table for each number of steps.
#include "engine/stage/plan_choose.h"
#include "base/mem.h"

struct plan_cell {
    uint64_t cost;
    uint32_t border, before; // where device d begins, and the device before it
};

struct plan_table {
    const struct plan_costs *costs;
    struct plan_cell *cells; // [n_devices, n_devices, n_layers + 1]
    uint32_t n_steps;
    bool overlaps;
};

struct plan_end { // of the best placement
    uint64_t cost;
    uint32_t n_before, device; // n_before PLAN_NONE: there is none
};

enum { PLAN_NONE = MAX_STAGES };

static struct plan_cell *cell_at(const struct plan_table *t, uint32_t n_before, uint32_t device,
                                 uint32_t last)
{
    const struct plan_costs *c = t->costs;

    return &t->cells[((size_t)n_before * c->n_devices + device) * (c->n_layers + 1) + last];
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

// Layers on device d, behind the best that ends where they begin, on an earlier device.
static struct plan_cell extend(const struct plan_table *t, uint32_t n_before, uint32_t d,
                               struct layer_range layers)
{
    const struct plan_costs *c = t->costs;
    struct plan_cell best = { PLAN_DOES_NOT_FIT, 0, 0 };
    uint64_t own = c->cost(c->arg, d, layers, t->n_steps);

    if (own == PLAN_DOES_NOT_FIT)
        return best;
    if (n_before == 0)
        return (struct plan_cell){ own, 0, d };
    for (uint32_t p = 0; p < d; p++) {
        uint64_t before = cell_at(t, n_before - 1, p, layers.first)->cost;
        if (before == PLAN_DOES_NOT_FIT)
            continue;
        uint64_t link = c->link(c->arg, p, d, t->n_steps),
                 all = t->overlaps ? larger(larger(before, link), own) : before + link + own;
        if (all < best.cost)
            best = (struct plan_cell){ all, layers.first, p };
    }
    return best;
}

// The cells of placements with n_before + 1 stages.
static void fill_cells(const struct plan_table *t, uint32_t n_before)
{
    uint32_t n_layers = t->costs->n_layers;

    for (uint32_t d = 0; d < t->costs->n_devices; d++)
        for (uint32_t j = 0; j <= n_layers; j++) {
            struct plan_cell *cell = cell_at(t, n_before, d, j);
            *cell = (struct plan_cell){ PLAN_DOES_NOT_FIT, 0, 0 };
            for (uint32_t i = 0; i < (n_before ? j : j > 0); i++) {
                struct plan_cell longer = extend(t, n_before, d, (struct layer_range){ i, j });
                if (longer.cost < cell->cost)
                    *cell = longer;
            }
        }
}

// The best of those with n_before + 1 stages, if it is better than what is known.
static bool take_best(const struct plan_table *t, uint32_t n_before, struct plan_end *best)
{
    bool is_better = false;

    for (uint32_t d = 0; d < t->costs->n_devices; d++) {
        uint64_t cost = cell_at(t, n_before, d, t->costs->n_layers)->cost;
        if (cost == PLAN_DOES_NOT_FIT)
            continue;
        cost *= t->overlaps ? t->n_steps : 1;
        if (cost < best->cost) {
            *best = (struct plan_end){ cost, n_before, d };
            is_better = true;
        }
    }
    return is_better;
}

// From the last device back to the first.
static void read_back(const struct plan_table *t, struct plan_end end, struct placement *p)
{
    uint32_t d = end.device, j = t->costs->n_layers;

    p->n = end.n_before + 1;
    for (uint32_t s = p->n; s-- > 0;) {
        const struct plan_cell *cell = cell_at(t, s, d, j);
        p->layers[s] = (struct layer_range){ cell->border, j };
        p->device[s] = d;
        j = cell->border;
        d = cell->before;
    }
}

static void add_up(struct plan_table *t, struct plan_end *best, struct placement *p)
{
    *t = (struct plan_table){ t->costs, t->cells, 1, false };
    for (uint32_t n = 0; n < t->costs->n_devices; n++) {
        fill_cells(t, n);
        if (take_best(t, n, best))
            read_back(t, *best, p);
    }
}

static void overlap(struct plan_table *t, struct plan_end *best, struct placement *p)
{
    for (uint32_t n_steps = 1; n_steps <= t->costs->most_steps && n_steps <= t->costs->n_devices; n_steps++) {
        *t = (struct plan_table){ t->costs, t->cells, n_steps, true };
        for (uint32_t n = 0; n < n_steps; n++)
            fill_cells(t, n);
        if (take_best(t, n_steps - 1, best))
            read_back(t, *best, p);
    }
}

bool plan_choose(const struct plan_costs *costs, struct placement *p, uint64_t *cost, struct err *err)
{
    size_t n = (size_t)costs->n_devices * costs->n_devices * (costs->n_layers + 1);
    struct plan_table t = { .costs = costs, .cells = mem_alloc_array(n, sizeof *t.cells) };
    struct plan_end best = { PLAN_DOES_NOT_FIT, PLAN_NONE, 0 };

    *p = (struct placement){ 0 };
    *err = (struct err){ 0 };
    if (!t.cells)
        return err_memory(err, "a plan");
    if (costs->most_steps > 1)
        overlap(&t, &best, p);
    if (best.n_before == PLAN_NONE || costs->may_add_up) // or no stage can be so large
        add_up(&t, &best, p);
    mem_free(t.cells);
    *cost = best.cost;
    return best.n_before != PLAN_NONE;
}
