// fake_driver.h - NVIDIA's driver for tests without a GPU: its memory is the process's, and its kernels do
// nothing, so that every token is 0. On its clock a kernel of a graph takes FAKE_KERNEL_NS and an event
// FAKE_EVENT_NS; one node runs at a time, the first or the last that its edges allow. Calls on a thread that
// has not chosen their device's context fail.
#pragma once
#include <stdlib.h>
#include "device/cuda/cuda.h"
#include "engine/stage/device_check.h"
#include "open_engine.h"

enum {
    LAUNCH_FAILED = 719,
    LOST = 999,
    NO_CONTEXT = 201,
    PEER_ENABLED_ALREADY = 704,
    FAKE_KERNEL_NS = 5000,
    FAKE_EVENT_NS = 4000
};

enum { FAKE_NODES = 1024, FAKE_EDGES = 4096 };
struct fake_graph {
    unsigned n_nodes, n_edges;
    uint64_t *events[FAKE_NODES]; // NULL: a kernel
    struct {
        unsigned from, to, type;
    } edges[FAKE_EDGES];
};

static struct {
    uint64_t memory_bytes, used_bytes;
    unsigned modules, launches, waits, waits_at_fault, launches_at_wait[64];
    unsigned fail_launch, fail_wait, fail_alloc, allocs; // the how manieth fails; 0: none
    unsigned most_pins, pins;                            // pieces of memory; 0: any number
    int n_devices;                                       // 0: one
    bool has_peers, spoils_direct, spoils_all;           // copies between devices arrive changed
    bool enabled[16][16];                                // from, to
    unsigned n_enabled, n_copies, n_follows;
    bool computes_wrong;
    cu_result stream_state;    // of all streams, when asked
    unsigned calls, fail_call; // of all that may fail
    int n_live;                // blocks of memory, graphs and events
    bool last_first;           // of a graph's nodes that can run
    uint64_t ns;               // the clock
    struct fake_graph *graph;  // last launched
    char contexts[16];         // one a device
} fake;

// Each thread chooses its own. A stream is its context.
static _Thread_local cu_context fake_context;

// Counts a call; whether it is the one that fails. Calls that give back do not, nor does the choice of a
// context, which comes before them too.
static bool fails(void)
{
    return ++fake.calls == fake.fail_call;
}

static cu_result name_of(cu_result result, const char **name)
{
    *name = result == LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR_UNKNOWN";
    return 0;
}
static cu_result count_devices(int *n)
{
    if (fails())
        return LOST;
    *n = fake.n_devices ? fake.n_devices : 1;
    return 0;
}
static cu_result get_device(cu_device *device, int ordinal)
{
    if (fails())
        return LOST;
    *device = ordinal;
    return 0;
}
static cu_result get_name(char *name, int n, cu_device device)
{
    (void)device;
    snprintf(name, (size_t)n, "a fake device");
    return 0;
}
static cu_result get_attribute(int *value, int attribute, cu_device device)
{
    if (fails())
        return LOST;
    (void)device;
    *value = attribute == CU_ATTRIBUTE_SM_COUNT       ? 4
             : attribute == CU_ATTRIBUTE_MAJOR        ? 9
             : attribute == CU_ATTRIBUTE_SHARED_OPTIN ? 232448
                                                      : 0;
    return 0;
}
static cu_result retain(cu_context *context, cu_device device)
{
    if (fails())
        return LOST;
    *context = &fake.contexts[device];
    return 0;
}
static cu_result release(cu_device device)
{
    (void)device;
    return 0;
}
static cu_result set_flags(cu_device device, unsigned flags)
{
    if (fails())
        return LOST;
    (void)device, (void)flags;
    return 0;
}
static cu_result set_context(cu_context context)
{
    fake_context = context;
    return 0;
}
static cu_result memory_info(size_t *free_bytes, size_t *total)
{
    if (fails())
        return LOST;
    *total = fake.memory_bytes;
    *free_bytes = fake.memory_bytes - fake.used_bytes;
    return 0;
}
static cu_result alloc(cu_address *at, size_t bytes)
{
    if (!fake_context)
        return NO_CONTEXT;
    if (fails() || ++fake.allocs == fake.fail_alloc)
        return CU_OUT_OF_MEMORY;
    *at = (cu_address)(uintptr_t)malloc(bytes);
    fake.n_live += *at != 0;
    return *at ? 0 : CU_OUT_OF_MEMORY;
}
static cu_result give_back(cu_address at)
{
    fake.n_live -= at != 0;
    free((void *)(uintptr_t)at);
    return 0;
}
static cu_result host_alloc(void **at, size_t bytes, unsigned flags)
{
    if (fails())
        return LOST;
    if (++fake.pins > fake.most_pins && fake.most_pins > 0)
        return CU_OUT_OF_MEMORY;
    (void)flags;
    *at = malloc(bytes);
    fake.n_live += *at != NULL;
    return *at ? 0 : CU_OUT_OF_MEMORY;
}
static cu_result host_free(void *at)
{
    fake.n_live -= at != NULL;
    free(at);
    return 0;
}
static cu_result clear(cu_address at, unsigned char value, size_t bytes, cu_stream stream)
{
    if (stream != fake_context)
        return NO_CONTEXT;
    if (fails())
        return LOST;
    memset((void *)(uintptr_t)at, value, bytes);
    return 0;
}
static cu_result write_to(cu_address to, const void *from, size_t bytes, cu_stream stream)
{
    if (stream != fake_context)
        return NO_CONTEXT;
    if (fails())
        return LOST;
    memcpy((void *)(uintptr_t)to, from, bytes);
    return 0;
}
// One tape it computes right, unless it is told not to: the known answer.
static cu_result read_from(void *to, cu_address from, size_t bytes, cu_stream stream)
{
    if (stream != fake_context)
        return NO_CONTEXT;
    if (fails())
        return LOST;
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    for (uint32_t i = 0; bytes == DEVICE_CHECK_BYTES && !fake.computes_wrong && i < DEVICE_CHECK_ROWS; i++)
        ((float *)to)[i] = device_check_answer(i);
    return 0;
}
static cu_result copy_rows(const struct cu_copy_rows *c, cu_stream stream)
{
    if (fails())
        return LOST;
    (void)stream;
    for (size_t i = 0; i < c->n_rows; i++)
        memcpy((unsigned char *)(uintptr_t)c->to.at + i * c->to.pitch,
               (const unsigned char *)(uintptr_t)c->from.at + i * c->from.pitch, c->row_bytes);
    return 0;
}
static cu_result state_of(cu_stream stream)
{
    (void)stream;
    return fake.stream_state;
}
static cu_result make_stream(cu_stream *stream, unsigned flags)
{
    if (fails())
        return LOST;
    (void)flags;
    *stream = fake_context;
    return fake_context ? 0 : NO_CONTEXT;
}
static cu_result drop_handle(void *handle)
{
    (void)handle;
    return 0;
}
static cu_result make_event(cu_event *event, unsigned flags)
{
    if (fails())
        return LOST;
    (void)flags;
    *event = calloc(1, sizeof(uint64_t));
    fake.n_live++;
    return 0;
}
static cu_result drop_event(cu_event event)
{
    fake.n_live--;
    free(event);
    return 0;
}
static cu_result record_event(cu_event event, cu_stream stream)
{
    if (stream != fake_context)
        return NO_CONTEXT;
    if (fails())
        return LOST;
    *(uint64_t *)event = fake.ns += FAKE_EVENT_NS;
    return 0;
}
static cu_result time_between(float *ms, cu_event from, cu_event to)
{
    if (fails())
        return LOST;
    *ms = (float)((double)(*(uint64_t *)to - *(uint64_t *)from) * 1e-6);
    return 0;
}
static cu_result follow(cu_stream stream, cu_event event, unsigned flags)
{
    if (fails())
        return LOST;
    (void)stream, (void)event, (void)flags;
    fake.n_follows++;
    return 0;
}
static cu_result can_reach(int *can, cu_device device, cu_device other)
{
    if (fails())
        return LOST;
    *can = fake.has_peers && device != other;
    return 0;
}
static cu_result enable_peer(cu_context other, unsigned flags)
{
    bool *enabled = &fake.enabled[(char *)fake_context - fake.contexts][(char *)other - fake.contexts];
    (void)flags;
    if (fails())
        return LOST;
    if (*enabled)
        return PEER_ENABLED_ALREADY;
    *enabled = true;
    fake.n_enabled++;
    return 0;
}
static cu_result disable_peer(cu_context other)
{
    fake.enabled[(char *)fake_context - fake.contexts][(char *)other - fake.contexts] = false;
    fake.n_enabled--;
    return 0;
}
static cu_result copy_to_peer(cu_address to, cu_context to_context, cu_address from, cu_context from_context,
                              size_t bytes, cu_stream stream)
{
    unsigned char *at = (unsigned char *)(uintptr_t)to;
    (void)to_context, (void)from_context;
    if (stream != fake_context)
        return NO_CONTEXT;
    if (fails())
        return LOST;

    memcpy(at, (const void *)(uintptr_t)from, bytes);
    at[bytes / 2] ^= fake.spoils_all || (fake.spoils_direct && fake.n_enabled > 0);
    fake.n_copies++;
    return 0;
}
static cu_result lose(cu_result how)
{
    fake.waits_at_fault = fake.waits;
    return how;
}
static cu_result wait_for_event(cu_event event)
{
    (void)event;
    if (fake.waits < 64)
        fake.launches_at_wait[fake.waits] = fake.launches;
    return ++fake.waits == fake.fail_wait || fails() ? lose(LAUNCH_FAILED) : 0;
}
static cu_result load_module(cu_module *module, const void *image)
{
    if (fails())
        return LOST;
    (void)image;
    fake.modules++;
    *module = &fake;
    return 0;
}
static cu_result find_function(cu_function *function, cu_module module, const char *name)
{
    if (fails())
        return LOST;
    (void)module, (void)name;
    *function = &fake;
    return 0;
}
static cu_result set_function(cu_function function, int attribute, int value)
{
    if (!fake_context)
        return NO_CONTEXT;
    if (fails())
        return LOST;
    (void)function, (void)attribute, (void)value;
    return 0;
}
static cu_result launch(cu_function function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared_bytes, cu_stream stream, void **params, void **extra)
{
    if (stream != fake_context)
        return NO_CONTEXT;
    if (fails())
        return LOST;
    (void)function, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared_bytes,
        (void)params;
    (void)extra;
    return 0;
}
static cu_result make_graph(cu_graph *graph, unsigned flags)
{
    if (fails())
        return LOST;
    (void)flags;
    *graph = calloc(1, sizeof(struct fake_graph));
    fake.n_live++;
    return 0;
}
static cu_result drop_graph(void *graph)
{
    fake.n_live--;
    fake.graph = graph == fake.graph ? NULL : fake.graph;
    free(graph);
    return 0;
}
static cu_result add_node(cu_node *node, cu_graph graph, uint64_t *event)
{
    struct fake_graph *g = graph;

    if (fails())
        return LOST;
    assert_true(g->n_nodes < FAKE_NODES);
    g->events[g->n_nodes] = event;
    *node = (cu_node)(uintptr_t)++g->n_nodes;
    return 0;
}
static cu_result add_kernel(cu_node *node, cu_graph graph, const cu_node *after, size_t n_after,
                            const struct cu_kernel_node *what)
{
    (void)after, (void)what;
    assert_int_equal(n_after, 0);
    return add_node(node, graph, NULL);
}
static cu_result add_event(cu_node *node, cu_graph graph, const cu_node *after, size_t n_after,
                           cu_event event)
{
    (void)after;
    assert_int_equal(n_after, 0);
    return add_node(node, graph, event);
}
static cu_result add_edges(cu_graph graph, const cu_node *from, const cu_node *to,
                           const struct cu_edge *edges, size_t n)
{
    struct fake_graph *g = graph;

    if (fails())
        return LOST;
    for (size_t i = 0; i < n; i++, g->n_edges++) {
        assert_true(g->n_edges < FAKE_EDGES);
        g->edges[g->n_edges].from = (unsigned)(uintptr_t)from[i] - 1;
        g->edges[g->n_edges].to = (unsigned)(uintptr_t)to[i] - 1;
        g->edges[g->n_edges].type = edges[i].type;
    }
    return 0;
}
static cu_result instantiate(cu_exec *exec, cu_graph graph, unsigned long long flags)
{
    if (fails())
        return LOST;
    (void)flags;
    *exec = malloc(sizeof(struct fake_graph));
    memcpy(*exec, graph, sizeof(struct fake_graph));
    fake.n_live++;
    return 0;
}
static cu_result upload(cu_exec exec, cu_stream stream)
{
    if (stream != fake_context)
        return NO_CONTEXT;
    if (fails())
        return LOST;
    (void)exec;
    return 0;
}
static unsigned next_node(const struct fake_graph *g, const bool *done)
{
    bool waits[FAKE_NODES] = { false };
    unsigned next = FAKE_NODES;

    for (unsigned i = 0; i < g->n_edges; i++)
        waits[g->edges[i].to] |= !done[g->edges[i].from];
    for (unsigned i = 0; i < g->n_nodes; i++)
        if (!done[i] && !waits[i] && (next == FAKE_NODES || fake.last_first))
            next = i;
    assert_true(next < FAKE_NODES); // else it is a circle
    return next;
}
static cu_result launch_graph(cu_exec exec, cu_stream stream)
{
    struct fake_graph *g = exec;
    bool done[FAKE_NODES] = { false };

    if (stream != fake_context)
        return NO_CONTEXT;
    if (++fake.launches == fake.fail_launch || fails())
        return lose(LOST);
    fake.graph = g;
    for (unsigned n = 0; n < g->n_nodes; n++) {
        unsigned i = next_node(g, done);
        done[i] = true;
        fake.ns += g->events[i] ? FAKE_EVENT_NS : FAKE_KERNEL_NS;
        if (g->events[i])
            *g->events[i] = fake.ns;
    }
    return 0;
}

// Any view of memory can be described, so that kernels with TMA are chosen.
static cu_result describe_tiles(void *map, int type, uint32_t n_dims, void *at, const uint64_t *dims,
                                const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
                                int interleave, int swizzle, int l2, int fill)
{
    (void)map, (void)type, (void)n_dims, (void)dims, (void)strides, (void)box, (void)steps;
    (void)interleave, (void)swizzle, (void)l2, (void)fill;
    return (uintptr_t)at % 16;
}

static const struct driver driver = {
    .tensor_tiles = describe_tiles,
    .error_name = name_of,
    .device_count = count_devices,
    .device_get = get_device,
    .device_name = get_name,
    .device_attribute = get_attribute,
    .primary_retain = retain,
    .primary_release = release,
    .primary_flags = set_flags,
    .context_set = set_context,
    .memory_info = memory_info,
    .alloc = alloc,
    .give_back = give_back,
    .host_alloc = host_alloc,
    .host_free = host_free,
    .clear = clear,
    .write = write_to,
    .read = read_from,
    .stream_create = make_stream,
    .stream_destroy = drop_handle,
    .stream_wait = drop_handle,
    .stream_query = state_of,
    .copy_rows = copy_rows,
    .event_create = make_event,
    .event_destroy = drop_event,
    .event_elapsed = time_between,
    .event_record = record_event,
    .event_wait = wait_for_event,
    .stream_follow = follow,
    .peer_can = can_reach,
    .peer_enable = enable_peer,
    .peer_disable = disable_peer,
    .peer_copy = copy_to_peer,
    .module_load = load_module,
    .module_unload = drop_handle,
    .module_function = find_function,
    .function_set = set_function,
    .launch = launch,
    .graph_create = make_graph,
    .graph_destroy = drop_graph,
    .graph_kernel = add_kernel,
    .graph_event = add_event,
    .graph_edges = add_edges,
    .graph_instantiate = instantiate,
    .graph_upload = upload,
    .graph_launch = launch_graph,
    .graph_exec_destroy = drop_graph,
};

static inline struct ingot_request_options request(void)
{
    static const uint32_t tokens[] = { 5, 6, 7 };

    return greedy_request(tokens, 3, 20);
}
