// profile_groups.c - sums of a step's commands by operation and by layer; see profile_result.h.
#include <string.h>
#include "base/mem.h"
#include "main/profile/profile_result.h"

const char *group_bound_name(enum group_bound_by bound)
{
    static const char *const names[N_BOUNDS] = { "memory", "arithmetic", "launch", "waiting" };
    return names[bound];
}

// Where weights come from a cache, the memory's limit is longer than the command: it counts as all of its
// work.
enum group_bound_by group_bound(const struct command_group *g)
{
    const double *limits = g->limits_ns, work = g->ns - g->wait_ns;
    enum group_bound_by best =
        limits[BOUND_MEMORY] >= limits[BOUND_ARITHMETIC] ? BOUND_MEMORY : BOUND_ARITHMETIC;
    double most = limits[best] < work ? limits[best] : work;

    for (enum group_bound_by b = BOUND_LAUNCH; b <= BOUND_WAITING; b++)
        if (limits[b] > most) {
            best = b;
            most = limits[b];
        }
    return best;
}

double group_share(const struct command_group *g)
{
    double memory = g->limits_ns[BOUND_MEMORY], arithmetic = g->limits_ns[BOUND_ARITHMETIC];
    return g->ns > 0 ? (memory > arithmetic ? memory : arithmetic) / g->ns : 0;
}

static void group_add(struct command_group *g, const struct profiled_command *c,
                      const struct device_limits *limits)
{
    g->n++;
    g->ns += c->ns;
    g->wait_ns += c->wait_ns;
    g->alone_ns += c->alone_ns;
    g->cost.weight_bytes += c->cost.weight_bytes;
    g->cost.page_bytes += c->cost.page_bytes;
    g->cost.value_bytes += c->cost.value_bytes;
    g->cost.operations += c->cost.operations;
    if (limits->read_bytes > 0)
        g->limits_ns[BOUND_MEMORY] += cost_bytes(&c->cost) / limits->read_bytes * 1e9;
    if (limits->operations > 0)
        g->limits_ns[BOUND_ARITHMETIC] += c->cost.operations / limits->operations * 1e9;
    g->limits_ns[BOUND_LAUNCH] += limits->command_ns;
    g->limits_ns[BOUND_WAITING] += c->wait_ns;
}

static int compare_groups(const void *a, const void *b)
{
    const struct command_group *x = a, *y = b;
    double i = x->ns > 0 ? x->ns : x->alone_ns, j = y->ns > 0 ? y->ns : y->alone_ns;
    return i > j ? -1 : i < j;
}

uint32_t groups_by_kind(const struct profile_result *r, const struct step_profile *p,
                        struct command_group groups[MOST_KINDS])
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < p->n_commands; i++) {
        const struct profiled_command *c = &p->commands[i];
        uint32_t k = 0;
        while (k < n && strcmp(groups[k].name, c->name) != 0)
            k++;
        CHECK(k < MOST_KINDS);
        if (k == n)
            groups[n++] = (struct command_group){ .name = c->name, .layer = NO_LAYER };
        group_add(&groups[k], c, &r->devices[c->device].limits);
    }
    qsort(groups, n, sizeof *groups, compare_groups);
    return n;
}

uint32_t groups_by_layer(const struct profile_result *r, const struct step_profile *p,
                         struct command_group **groups)
{
    uint32_t n_layers = 0;

    for (uint32_t i = 0; i < p->n_commands; i++)
        if (p->commands[i].layer != NO_LAYER && p->commands[i].layer >= n_layers)
            n_layers = p->commands[i].layer + 1;
    *groups = mem_alloc_array((size_t)n_layers + 1, sizeof **groups);
    if (!*groups)
        return 0;
    for (uint32_t i = 0; i <= n_layers; i++)
        (*groups)[i].layer = i < n_layers ? i : NO_LAYER;
    for (uint32_t i = 0; i < p->n_commands; i++) {
        const struct profiled_command *c = &p->commands[i];
        group_add(&(*groups)[c->layer < n_layers ? c->layer : n_layers], c, &r->devices[c->device].limits);
    }
    return n_layers + 1;
}
