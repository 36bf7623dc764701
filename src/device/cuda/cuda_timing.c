// cuda_timing.c - when each command of a tape ran on a GPU, for a profile.
//
// A graph of its own: the launches in the tape's order, one after the other, an event before each command and
// one at the end. Such a play takes longer than the plain one, which overlaps a kernel's start with the end
// of the one before and plays independent commands side by side; a profile prints how much longer. What lies
// between two events is a command with its launch, so there is no waiting to tell apart. A tape with products
// by the vendor's library is played launch by launch, with the same events.
#include "base/clock.h"
#include "base/mem.h"
#include "device/cuda/cuda_internal.h"

struct cuda_timing {
    cu_event *events; // [n_events], one more than the tape has commands
    uint32_t n_events;
    cu_exec exec;
    cu_address step; // that exec was built for
};

static void exec_drop(struct cuda *c, struct cuda_timing *timing)
{
    if (timing->exec)
        c->cu->graph_exec_destroy(timing->exec);
    timing->exec = NULL;
}

void cuda_timing_drop(struct cuda *c, struct cuda_timing *timing)
{
    if (!timing)
        return;
    exec_drop(c, timing);
    for (uint32_t i = 0; i < timing->n_events; i++)
        c->cu->event_destroy(timing->events[i]);
    mem_free(timing->events);
    mem_free(timing);
}

static bool make_events(struct cuda *c, const struct tape *t, struct err *err)
{
    struct cuda_tape *n = t->native;

    if (n->timing)
        return true;
    if (!(n->timing = mem_alloc(sizeof *n->timing)))
        return err_memory(err, "the times of a tape");
    n->timing->events = mem_alloc_array((size_t)t->n_commands + 1, sizeof *n->timing->events);
    if (!n->timing->events)
        return err_memory(err, "the times of a tape");
    for (uint32_t *i = &n->timing->n_events; *i <= t->n_commands; (*i)++)
        if (!cuda_check(c, c->cu->event_create(&n->timing->events[*i], 0), "an event", err))
            return false;
    return true;
}

// Nodes in a row.
struct chain {
    struct cuda *cuda;
    cu_graph graph;
    cu_node last;
};

static bool chain_event(struct chain *chain, cu_event event, struct err *err)
{
    cu_node before = chain->last;

    return cuda_check(
        chain->cuda, chain->cuda->cu->graph_event(&chain->last, chain->graph, &before, before != NULL, event),
        "a graph's event", err);
}

static bool chain_launch(struct chain *chain, struct cuda_launch *l, struct err *err)
{
    cu_node before = chain->last;
    void *params[] = { l->params };
    struct cu_kernel_node what = { .function = l->function,
                                   .grid = { l->grid[0], l->grid[1], l->grid[2] },
                                   .block = { l->block, 1, 1 },
                                   .shared_bytes = l->shared,
                                   .params = params };

    return cuda_check(
        chain->cuda,
        chain->cuda->cu->graph_kernel(&chain->last, chain->graph, &before, before != NULL, &what),
        "a graph's node", err);
}

static bool chain_tape(struct chain *chain, const struct tape *t, struct err *err)
{
    struct cuda_tape *n = t->native;

    for (uint32_t i = 0; i < t->n_commands; i++) {
        if (!chain_event(chain, n->timing->events[i], err))
            return false;
        for (uint32_t l = n->first_launch[i]; l < n->first_launch[i + 1]; l++)
            if (!chain_launch(chain, &n->plan.launches[l], err))
                return false;
    }
    return chain_event(chain, n->timing->events[t->n_commands], err);
}

static bool make_exec(struct cuda *c, const struct tape *t, cu_address step, struct err *err)
{
    struct cuda_tape *n = t->native;
    struct chain chain = { .cuda = c };

    if (n->timing->exec && n->timing->step == step)
        return true;
    exec_drop(c, n->timing);
    cuda_tape_step_set(n, step);
    n->timing->step = step;
    bool ok = cuda_check(c, c->cu->graph_create(&chain.graph, 0), "a graph", err) &&
              chain_tape(&chain, t, err) &&
              cuda_check(c, c->cu->graph_instantiate(&n->timing->exec, chain.graph, 0), "a graph", err) &&
              cuda_check(c, c->cu->graph_upload(n->timing->exec, c->stream), "a graph", err) &&
              cuda_check(c, c->cu->stream_wait(c->stream), "a graph", err);
    if (chain.graph)
        c->cu->graph_destroy(chain.graph);
    return ok;
}

static bool play_launches(struct cuda *c, struct tape *t, const struct buffer *step, struct err *err)
{
    struct cuda_tape *n = t->native;

    for (uint32_t i = 0; i < t->n_commands; i++)
        if (!cuda_check(c, c->cu->event_record(n->timing->events[i], c->stream), "an event", err) ||
            !cuda_tape_play(&c->device, t, step, i, i + 1, err))
            return false;
    return cuda_check(c, c->cu->event_record(n->timing->events[t->n_commands], c->stream), "an event", err);
}

static uint64_t ns_between(const struct cuda *c, cu_event from, cu_event to)
{
    float ms = 0;
    return c->cu->event_elapsed(&ms, from, to) == 0 && ms > 0 ? (uint64_t)((double)ms * 1e6) : 0;
}

// The last event is taken for the moment at which the host's wait ended.
static void read_events(const struct cuda *c, const struct tape *t, struct play_times *times)
{
    const struct cuda_timing *timing = ((struct cuda_tape *)t->native)->timing;
    uint64_t begin = times->ended - ns_between(c, timing->events[0], timing->events[t->n_commands]);

    begin = begin > times->begun ? begin : times->begun;
    for (uint32_t i = 0; i < t->n_commands; i++) {
        times->spans[i].begin = begin;
        begin += ns_between(c, timing->events[i], timing->events[i + 1]);
        begin = begin < times->ended ? begin : times->ended;
        times->spans[i].end = begin;
    }
}

uint32_t cuda_n_lanes(struct device *d)
{
    (void)d;
    return 1;
}

bool cuda_tape_play_timed(struct device *d, struct tape *t, const struct buffer *step,
                          struct play_times *times, struct err *err)
{
    struct cuda *c = (struct cuda *)d;
    struct cuda_tape *n = t->native;
    bool graph = n->plan.n_products == 0;

    if (!cuda_check(c, c->cu->context_set(c->context), "choosing the device", err) ||
        !make_events(c, t, err) || (graph && !make_exec(c, t, (cu_address)(uintptr_t)step->native, err)))
        return false;
    *times = (struct play_times){ clock_ns(), 0, 1, times->spans };
    if (graph ? !cuda_check(c, c->cu->graph_launch(n->timing->exec, c->stream), "a step", err)
              : !play_launches(c, t, step, err))
        return false;
    if (!cuda_check(c, c->cu->stream_wait(c->stream), "a step", err))
        return false;
    times->ended = clock_ns();
    d->counters.submissions += graph;
    read_events(c, t, times);
    return true;
}
