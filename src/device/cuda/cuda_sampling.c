// cuda_sampling.c - at which moments of a play on a GPU the commands so far had ended, for a profile.
//
// An event between two kernels costs some 4 us: the later one no longer starts while the earlier one drains
// (programmatic dependent launch), nor beside it. Events before all commands made a step 74 % longer
// (bench/results/2026-11-23-h200.md). So a play has a few of them, and other plays have them elsewhere. Its
// graph is that of a plain step, cut into parts by events: edges inside a part are kept, programmatic ones
// too; edges that cross a cut become dependencies on its event. A tape with products by the vendor's library
// is played launch by launch, with the same events.
#include "base/mem.h"
#include "device/cuda/cuda_internal.h"

struct cut_play {
    struct play_cuts cuts;
    cu_event *events; // [n_parts + 1]: at the begin, at each cut, at the end
    uint32_t n_events, n_parts;
    cu_exec exec;
    cu_address step; // that exec was built for
};

struct cuda_samples {
    struct cuda_edges edges;
    struct cut_play at[DEVICE_SAMPLES];
};

static void exec_drop(struct cuda *c, struct cut_play *s)
{
    if (s->exec)
        c->cu->graph_exec_destroy(s->exec);
    s->exec = NULL;
}

void cuda_samples_drop(struct cuda *c, struct cuda_samples *samples)
{
    if (!samples)
        return;
    for (struct cut_play *s = samples->at; s < samples->at + DEVICE_SAMPLES; s++) {
        exec_drop(c, s);
        for (uint32_t i = 0; i < s->n_events; i++)
            c->cu->event_destroy(s->events[i]);
        mem_free(s->events);
    }
    cuda_edges_free(&samples->edges);
    mem_free(samples);
}

static bool samples_open(struct tape *t, bool graph, struct err *err)
{
    struct cuda_tape *n = t->native;

    if (!n->samples && !(n->samples = mem_alloc(sizeof *n->samples)))
        return err_memory(err, "the samples of a tape");
    return !graph || n->samples->edges.nodes || cuda_edges_find(t, 0, &n->samples->edges, err);
}

static bool events_make(struct cuda *c, struct cut_play *s, struct err *err)
{
    if (s->n_events > s->n_parts)
        return true;
    cu_event *grown = mem_realloc(s->events, ((size_t)s->n_parts + 1) * sizeof *grown);
    if (!grown)
        return err_memory(err, "the samples of a tape");
    for (s->events = grown; s->n_events <= s->n_parts; s->n_events++)
        if (!cuda_check(c, c->cu->event_create(&s->events[s->n_events], 0), "an event", err))
            return false;
    return true;
}

static uint32_t part_of(const struct play_cuts *cuts, uint32_t command)
{
    return command < cuts->first ? 0 : 1 + (command - cuts->first) / cuts->every;
}

static uint32_t part_begin(const struct cut_play *s, uint32_t part, uint32_t n_commands)
{
    return part == 0 ? 0 : part == s->n_parts ? n_commands : s->cuts.first + (part - 1) * s->cuts.every;
}

// ---- the graph

struct cut_graph {
    struct cuda *cuda;
    struct cuda_tape *tape;
    cu_graph graph;
    const struct cut_play *sample;
    cu_node *events;       // [n_parts + 1]
    bool *follows, *leads; // [n_launches] whether an edge inside a part enters it, leaves it
};

static bool join(const struct cut_graph *g, cu_node from, cu_node to, struct err *err)
{
    struct cu_edge full = { 0 };
    return cuda_check(g->cuda, g->cuda->cu->graph_edges(g->graph, &from, &to, &full, 1), "a graph's edge",
                      err);
}

static bool add_events(const struct cut_graph *g, struct err *err)
{
    for (uint32_t i = 0; i <= g->sample->n_parts; i++)
        if (!cuda_check(g->cuda,
                        g->cuda->cu->graph_event(&g->events[i], g->graph, NULL, 0, g->sample->events[i]),
                        "a graph's event", err))
            return false;
    return true;
}

static bool add_inner_edges(const struct cut_graph *g, struct err *err)
{
    const struct cuda_edges *e = &g->tape->samples->edges;
    const struct cuda_launch *launches = g->tape->plan.launches;

    for (uint32_t i = 0; i < e->n; i++) {
        if (part_of(&g->sample->cuts, launches[e->from[i]].command) !=
            part_of(&g->sample->cuts, launches[e->to[i]].command))
            continue;
        if (!cuda_graph_edge(g->cuda, g->graph, e, i, err))
            return false;
        g->leads[e->from[i]] = g->follows[e->to[i]] = true;
    }
    return true;
}

static bool add_cut_edges(const struct cut_graph *g, struct err *err)
{
    const cu_node *nodes = g->tape->samples->edges.nodes;

    for (uint32_t i = 0; i < g->tape->plan.n_launches; i++) {
        uint32_t part = part_of(&g->sample->cuts, g->tape->plan.launches[i].command);
        if ((!g->follows[i] && !join(g, g->events[part], nodes[i], err)) ||
            (!g->leads[i] && !join(g, nodes[i], g->events[part + 1], err)))
            return false;
    }
    return true;
}

static bool build(struct cuda *c, struct tape *t, struct cut_play *s, struct err *err)
{
    struct cuda_tape *n = t->native;
    struct cut_graph g = { .cuda = c,
                           .tape = n,
                           .sample = s,
                           .events = mem_alloc_array((size_t)s->n_parts + 1, sizeof *g.events),
                           .follows = mem_alloc_array(n->plan.n_launches, sizeof *g.follows),
                           .leads = mem_alloc_array(n->plan.n_launches, sizeof *g.leads) };
    bool ok = (g.events && g.follows && g.leads) || err_memory(err, "a graph");

    ok = ok && cuda_check(c, c->cu->graph_create(&g.graph, 0), "a graph", err) &&
         cuda_graph_kernels(c, n, g.graph, &n->samples->edges, err) && add_events(&g, err) &&
         add_inner_edges(&g, err) && add_cut_edges(&g, err) && cuda_graph_finish(c, g.graph, &s->exec, err);
    if (g.graph)
        c->cu->graph_destroy(g.graph);
    mem_free(g.events);
    mem_free(g.follows);
    mem_free(g.leads);
    return ok;
}

// ---- plays

static bool prepare(struct device *d, struct tape *t, const struct buffer *step, const struct play_cuts *cuts,
                    struct err *err)
{
    struct cuda *c = (struct cuda *)d;
    struct cuda_tape *n = t->native;
    cu_address at = (cu_address)(uintptr_t)step->native;
    bool graph = n->plan.n_products == 0;

    CHECK(t->n_segments == 1 && cuts->sample < DEVICE_SAMPLES && cuts->first > 0 && cuts->every > 0);
    if (!cuda_use(c, err) || (graph && !cuda_tape_prepare(c, t, 0, at, err)) || !samples_open(t, graph, err))
        return false;
    struct cut_play *s = &n->samples->at[cuts->sample];
    if (s->exec && s->step == at && s->cuts.first == cuts->first && s->cuts.every == cuts->every)
        return true;
    exec_drop(c, s);
    s->cuts = *cuts;
    s->step = at;
    s->n_parts = part_of(cuts, t->n_commands - 1) + 1;
    return events_make(c, s, err) && (!graph || build(c, t, s, err));
}

static bool play_launches(struct cuda *c, struct tape *t, const struct buffer *step, const struct cut_play *s,
                          struct err *err)
{
    for (uint32_t i = 0; i < s->n_parts; i++)
        if (!cuda_check(c, c->cu->event_record(s->events[i], c->stream), "an event", err) ||
            !cuda_tape_play(&c->device, t, step, part_begin(s, i, t->n_commands),
                            part_begin(s, i + 1, t->n_commands), err))
            return false;
    return cuda_check(c, c->cu->event_record(s->events[s->n_parts], c->stream), "an event", err);
}

static bool play(struct device *d, struct tape *t, const struct buffer *step, uint32_t sample,
                 struct err *err)
{
    struct cuda *c = (struct cuda *)d;
    const struct cut_play *s = &((struct cuda_tape *)t->native)->samples->at[sample];

    if (!cuda_use(c, err))
        return false;
    if (!s->exec)
        return play_launches(c, t, step, s, err);
    d->counters.submissions++;
    d->counters.commands += t->n_commands;
    return cuda_check(c, c->cu->graph_launch(s->exec, c->stream), "a step", err);
}

static bool read_events(struct device *d, struct tape *t, uint32_t sample, double *ns, struct err *err)
{
    struct cuda *c = (struct cuda *)d;
    const struct cut_play *s = &((struct cuda_tape *)t->native)->samples->at[sample];

    for (uint32_t i = 0; i < s->n_parts; i++) {
        float ms = 0;
        if (!cuda_check(c, c->cu->event_elapsed(&ms, s->events[0], s->events[i + 1]), "an event's time", err))
            return false;
        ns[i] = (double)ms * 1e6;
    }
    return true;
}

const struct device_sampling cuda_sampling = { prepare, play, read_events };
