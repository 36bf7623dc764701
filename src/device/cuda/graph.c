// graph.c - tapes as CUDA graphs.
//
// seal asks every operation for its launches. The first play with a given step buffer turns those of a
// segment into one graph. Within a command the launches follow each other; between commands there is an edge
// where their byte ranges conflict, unless another path implies it. An edge that is a kernel's only one, in
// and out, is programmatic (programmatic dependent launch): the later kernel starts while the earlier one
// drains, and every kernel waits (griddepcontrol.wait) before it uses what an earlier one may write. Tapes of
// few rows, whose kernels are short, are one chain in the recorded order: a fork and a join have no such
// edges, and cost more than their branches save. Another range of commands is played as plain launches, in
// order: for tape_diff, and for tapes with products by the vendor's library.
#include <string.h>
#include "base/mem.h"
#include "device/cuda/cuda_internal.h"

enum { CHAIN_ROWS = 64 }; // of tapes whose launches are one chain

// Room for one more launch, zeroed but for its parameters; NULL after an error.
static struct cuda_launch *launch_new(struct cuda_plan *p, const char *kernel, const void *params,
                                      uint32_t bytes)
{
    CHECK(bytes <= CUDA_PARAMS_BYTES && bytes >= 8);
    if (p->error.code != ERR_NONE)
        return NULL;
    if (p->n_launches == p->capacity) {
        uint32_t capacity = p->capacity ? 2 * p->capacity : 64;
        struct cuda_launch *grown = mem_realloc(p->launches, capacity * sizeof *grown);
        if (!grown) {
            err_memory(&p->error, "a tape's launches");
            return NULL;
        }
        p->launches = grown;
        p->capacity = capacity;
    }
    struct cuda_launch *l = &p->launches[p->n_launches++];
    *l = (struct cuda_launch){ 0 };
    snprintf(l->kernel, sizeof l->kernel, "%s", kernel);
    memcpy(l->params, params, bytes);
    return l;
}

void cuda_launch_add(struct cuda_plan *p, const char *kernel, struct cuda_shape shape, const void *params,
                     uint32_t bytes)
{
    struct cuda_launch *l = launch_new(p, kernel, params, bytes);

    if (!l)
        return;
    memcpy(l->grid, shape.grid, sizeof l->grid);
    l->block = shape.block;
    l->shared = shape.shared;
    l->function = cuda_function(p->cuda, kernel);
    if (l->function) // one carveout for all kernels: kernels with different ones never run side by side on an
                     // SM
        cuda_check(p->cuda, p->cuda->cu->function_set(l->function, CU_FUNCTION_SHARED_CARVEOUT, 100), kernel,
                   &p->error);
    if (!l->function)
        err_set(&p->error, ERR_UNSUPPORTED, "this build has no kernel %s", kernel);
    else if (shape.shared > p->device.shared_bytes)
        err_set(&p->error, ERR_UNSUPPORTED, "%s wants %u bytes of shared memory, the device has %u", kernel,
                shape.shared, p->device.shared_bytes);
    else if (shape.shared + STATIC_SHARED_BYTES > 48 * 1024) // the kernel's own counts too
        cuda_check(p->cuda,
                   p->cuda->cu->function_set(l->function, CU_FUNCTION_MAX_DYNAMIC_SHARED,
                                             (int)p->device.shared_bytes),
                   kernel, &p->error);
}

void cuda_launch_ends_first(struct cuda_plan *p)
{
    if (p->n_launches > 0)
        p->launches[p->n_launches - 1].ends_first = true;
}

void cuda_product_add(struct cuda_plan *p, const struct vendor_product *product)
{
    struct cuda *c = p->cuda;

    if (p->error.code == ERR_NONE && !c->vendor && cuda_use(c, &p->error))
        c->vendor = vendor_open(c->stream, &p->error);
    p->n_products += launch_new(p, "cuBLAS", product, sizeof *product) != NULL;
}

bool cuda_has_kernel(const struct cuda_plan *p, const char *kernel)
{
    return cuda_function(p->cuda, kernel) != NULL;
}

bool cuda_view_encode(const struct cuda_plan *p, const struct cuda_view *view, void *map)
{
    static const uint32_t every[5] = { 1, 1, 1, 1, 1 };

    return p->cuda->cu->tensor_tiles &&
           p->cuda->cu->tensor_tiles(map, CU_TENSOR_BF16, 5, (void *)(uintptr_t)view->at, view->dims,
                                     view->strides, view->box, every, 0, CU_TENSOR_SWIZZLE_128,
                                     CU_TENSOR_L2_256, 0) == 0;
}

struct cuda_plan cuda_plan_of(struct device *d, const struct tape_limits *limits,
                              const struct command *command)
{
    struct cuda *c = (struct cuda *)d;

    return (struct cuda_plan){ .device = c->limits, .tape = *limits, .command = command, .cuda = c };
}

uint64_t cuda_at(const struct cuda_plan *p, uint32_t operand)
{
    const struct operand *o = &p->command->operands[operand];
    return o->buffer ? (uint64_t)(uintptr_t)o->buffer->native + o->offset : 0;
}

const struct weight *cuda_weight(const struct cuda_plan *p, uint32_t operand)
{
    return p->command->operands[operand].weight;
}

// One pass over the commands. The first one measures the private memory they want.
static bool plan_commands(struct cuda *c, struct tape *t, struct cuda_tape *n, struct err *err)
{
    struct cuda_plan *p = &n->plan;
    uint64_t most = 0, most_counters = 0;

    p->n_launches = p->n_products = 0;
    for (uint32_t i = 0; i < t->n_commands; i++) {
        uint32_t first = p->n_launches;
        n->first_launch[i] = first;
        if (t->commands[i].border)
            continue;
        p->command = &t->commands[i];
        p->private_bytes = p->counters_bytes = 0;
        if (t->commands[i].op >= TAPE_TELL)
            cuda_plan_exchange(p);
        else if (c->table->plans[t->commands[i].op])
            c->table->plans[t->commands[i].op](p);
        else
            err_set(&p->error, ERR_UNSUPPORTED, "the CUDA device has no kernel for it");
        if (p->error.code != ERR_NONE) {
            if (err)
                *err = p->error;
            return err_prefix(err, "%s: %s", t->commands[i].label, t->commands[i].name);
        }
        for (uint32_t l = first; l < p->n_launches; l++)
            p->launches[l].command = i;
        n->uses_private[i] = p->private_bytes + p->counters_bytes > 0;
        most_counters = p->counters_bytes > most_counters ? p->counters_bytes : most_counters;
        most = p->private_bytes > most ? p->private_bytes : most;
    }
    n->first_launch[t->n_commands] = p->n_launches;
    p->private_bytes = most;
    p->counters_bytes = (most_counters + 255) / 256 * 256;
    return true;
}

// The work in flight may use them.
static void drop_graphs(struct cuda *c, const struct tape *t)
{
    struct cuda_tape *n = t->native;
    bool waited = false;

    for (uint32_t i = 0; n->graphs && i < t->n_segments; i++) {
        if (!n->graphs[i])
            continue;
        if (!waited)
            c->cu->stream_wait(c->stream);
        waited = true;
        c->cu->graph_exec_destroy(n->graphs[i]);
        n->graphs[i] = NULL;
    }
}

void cuda_tape_drop(struct device *d, struct tape *t)
{
    struct cuda *c = (struct cuda *)d;
    struct cuda_tape *n = t->native;

    if (!n)
        return;
    c->cu->context_set(c->context);
    c->cu->stream_wait(c->stream);
    drop_graphs(c, t);
    mem_free(n->graphs);
    cuda_samples_drop(c, n->samples);
    buffer_release(&n->private_memory);
    mem_free(n->plan.launches);
    mem_free(n->first_launch);
    mem_free(n->uses_private);
    mem_free(n);
    t->native = NULL;
}

const char *cuda_tape_kernel(const struct tape *t, uint32_t command, uint32_t launch)
{
    const struct cuda_tape *n = t->native;
    uint32_t at = n->first_launch[command] + launch;

    return at < n->first_launch[command + 1] ? n->plan.launches[at].kernel : NULL;
}

bool cuda_tape_seal(struct device *d, struct tape *t, struct err *err)
{
    struct cuda *c = (struct cuda *)d;
    struct cuda_tape *n = mem_alloc(sizeof *n);

    if (!n)
        return err_memory(err, "a tape");
    t->native = n;
    n->plan =
        (struct cuda_plan){ .device = c->limits, .tape = t->limits, .exchange = t->exchange, .cuda = c };
    n->first_launch = mem_alloc_array((size_t)t->n_commands + 1, sizeof *n->first_launch);
    n->uses_private = mem_alloc_array((size_t)t->n_commands + 1, sizeof *n->uses_private);
    n->graphs = mem_alloc_array(t->n_segments, sizeof(cu_exec));
    bool ok = n->first_launch && n->uses_private && n->graphs ? plan_commands(c, t, n, err)
                                                              : err_memory(err, "a tape");
    uint64_t bytes = n->plan.private_bytes + n->plan.counters_bytes;
    if (ok && bytes > 0) {
        ok = buffer_alloc(d, bytes, &n->private_memory, err);
        n->plan.counters_at = (uint64_t)(uintptr_t)n->private_memory.native;
        n->plan.private_at = n->plan.counters_at + n->plan.counters_bytes;
        ok = ok && plan_commands(c, t, n, err);
    }
    if (!ok)
        cuda_tape_drop(d, t);
    return ok;
}

void cuda_tape_step_set(struct cuda_tape *n, cu_address step)
{
    for (uint32_t i = 0; i < n->plan.n_launches; i++)
        if (n->plan.launches[i].function)
            memcpy(n->plan.launches[i].params, &step, sizeof step);
}

static bool edge_add(struct cuda_edges *e, uint32_t from, uint32_t to)
{
    if (e->n == e->capacity) {
        uint32_t capacity = e->capacity ? 2 * e->capacity : 256;
        uint32_t *grown_from = mem_realloc(e->from, capacity * sizeof *grown_from);
        e->from = grown_from ? grown_from : e->from;
        uint32_t *grown_to = mem_realloc(e->to, capacity * sizeof *grown_to);
        e->to = grown_to ? grown_to : e->to;
        if (!grown_from || !grown_to)
            return false;
        e->capacity = capacity;
    }
    e->from[e->n] = from;
    e->to[e->n++] = to;
    e->n_out[from]++;
    e->n_in[to]++;
    return true;
}

// Every launch follows the one before it: it ends after it has waited, so all before it have ended too.
static bool chain_edges(const struct cuda_tape *n, struct cuda_edges *e)
{
    for (uint32_t l = n->first_launch[e->of.first] + 1; l < n->first_launch[e->of.last]; l++)
        if (!edge_add(e, l - 1, l))
            return false;
    return true;
}

// Walks back from each command. reached[j]: a path from j to i exists, so an edge would add nothing.
static bool find_edges(const struct tape *t, const struct cuda_tape *n, struct cuda_edges *e,
                       unsigned char *paths)
{
    uint32_t count = t->n_commands;

    if (t->limits.max_rows <= CHAIN_ROWS)
        return chain_edges(n, e);
    for (uint32_t i = e->of.first; i < e->of.last; i++) {
        unsigned char *reached = paths + (size_t)i * count;
        for (uint32_t l = n->first_launch[i] + 1; l < n->first_launch[i + 1]; l++)
            if (!edge_add(e, l - 1, l))
                return false;
        for (uint32_t j = i; j-- > e->of.first;) {
            bool conflict = hazard_between(&t->commands[j], &t->commands[i]) ||
                            (n->uses_private[i] && n->uses_private[j]);
            if (reached[j] || !conflict)
                continue;
            if (!edge_add(e, n->first_launch[j + 1] - 1, n->first_launch[i]))
                return false;
            reached[j] = 1;
            for (uint32_t k = 0; k < j; k++)
                reached[k] |= paths[(size_t)j * count + k];
        }
    }
    return true;
}

void cuda_edges_free(struct cuda_edges *e)
{
    mem_free(e->nodes);
    mem_free(e->from);
    mem_free(e->to);
    mem_free(e->n_out);
    mem_free(e->n_in);
    *e = (struct cuda_edges){ 0 };
}

bool cuda_edges_find(const struct tape *t, uint32_t segment, struct cuda_edges *e, struct err *err)
{
    const struct cuda_tape *n = t->native;
    uint32_t count = n->plan.n_launches;
    unsigned char *paths = mem_alloc_array((size_t)t->n_commands, t->n_commands);

    *e = (struct cuda_edges){ .of = t->segments[segment],
                              .nodes = mem_alloc_array(count, sizeof *e->nodes),
                              .n_out = mem_alloc_array(count, sizeof *e->n_out),
                              .n_in = mem_alloc_array(count, sizeof *e->n_in) };
    bool ok = e->nodes && e->n_out && e->n_in && paths && find_edges(t, n, e, paths);
    for (uint32_t l = n->first_launch[e->of.first]; ok && l < n->first_launch[e->of.last]; l++)
        e->n_out[l] += n->plan.launches[l].ends_first; // as if it had another edge
    mem_free(paths);
    return ok || err_memory(err, "a tape's graph");
}

bool cuda_graph_kernels(struct cuda *c, struct cuda_tape *n, cu_graph graph, const struct cuda_edges *e,
                        struct err *err)
{
    for (uint32_t i = n->first_launch[e->of.first]; i < n->first_launch[e->of.last]; i++) {
        struct cuda_launch *l = &n->plan.launches[i];
        void *params[] = { l->params };
        struct cu_kernel_node what = { .function = l->function,
                                       .grid = { l->grid[0], l->grid[1], l->grid[2] },
                                       .block = { l->block, 1, 1 },
                                       .shared_bytes = l->shared,
                                       .params = params };
        if (!cuda_check(c, c->cu->graph_kernel(&e->nodes[i], graph, NULL, 0, &what), "a graph's node", err))
            return false;
    }
    return true;
}

bool cuda_graph_edge(struct cuda *c, cu_graph graph, const struct cuda_edges *e, uint32_t i, struct err *err)
{
    bool only = e->n_out[e->from[i]] == 1 && e->n_in[e->to[i]] == 1 && c->limits.capability >= 90;
    struct cu_edge edge = { .from_port = only ? CU_EDGE_PROGRAMMATIC : 0,
                            .type = only ? CU_EDGE_PROGRAMMATIC : 0 };

    return cuda_check(c, c->cu->graph_edges(graph, &e->nodes[e->from[i]], &e->nodes[e->to[i]], &edge, 1),
                      "a graph's edge", err);
}

bool cuda_graph_finish(struct cuda *c, cu_graph graph, cu_exec *exec, struct err *err)
{
    return cuda_check(c, c->cu->graph_instantiate(exec, graph, 0), "a graph", err) &&
           cuda_check(c, c->cu->graph_upload(*exec, c->stream), "a graph", err);
}

static bool build(struct cuda *c, struct tape *t, uint32_t segment, struct err *err)
{
    struct cuda_tape *n = t->native;
    struct cuda_edges e;
    cu_graph graph = NULL;
    bool ok = cuda_edges_find(t, segment, &e, err) &&
              cuda_check(c, c->cu->graph_create(&graph, 0), "a graph", err) &&
              cuda_graph_kernels(c, n, graph, &e, err);

    for (uint32_t i = 0; ok && i < e.n; i++)
        ok = cuda_graph_edge(c, graph, &e, i, err);
    ok = ok && cuda_graph_finish(c, graph, &n->graphs[segment], err);
    if (graph)
        c->cu->graph_destroy(graph);
    cuda_edges_free(&e);
    c->device.counters.pipelines++;
    return ok;
}

// A tape usually keeps its step buffer; another one needs new graphs.
bool cuda_tape_prepare(struct cuda *c, struct tape *t, uint32_t segment, cu_address step, struct err *err)
{
    struct cuda_tape *n = t->native;

    if (n->graphs[segment] && n->step == step)
        return true;
    if (n->step != step)
        drop_graphs(c, t);
    n->step = step;
    cuda_tape_step_set(n, step);
    return build(c, t, segment, err);
}

bool cuda_tape_ready(struct device *d, struct tape *t, const struct buffer *step, struct err *err)
{
    struct cuda *c = (struct cuda *)d;
    const struct cuda_tape *n = t->native;

    if (!cuda_use(c, err))
        return false;
    t->plays_at_once = n->plan.n_products == 0;
    for (uint32_t i = 0; t->plays_at_once && i < t->n_segments; i++)
        if (t->segments[i].first < t->segments[i].last &&
            !cuda_tape_prepare(c, t, i, (cu_address)(uintptr_t)step->native, err))
            return false;
    return true;
}

static bool play_range(struct cuda *c, struct tape *t, uint32_t first, uint32_t last, struct err *err)
{
    struct cuda_tape *n = t->native;

    for (uint32_t i = n->first_launch[first]; i < n->first_launch[last]; i++) {
        struct cuda_launch *l = &n->plan.launches[i];
        void *params[] = { l->params };
        if (!l->function) {
            struct vendor_product product;
            memcpy(&product, l->params, sizeof product);
            if (!vendor_multiply(c->vendor, &product, err))
                return err_prefix(err, "%s: %s", c->device.name, t->commands[l->command].name);
            continue;
        }
        cu_result result = c->cu->launch(l->function, l->grid[0], l->grid[1], l->grid[2], l->block, 1, 1,
                                         l->shared, c->stream, params, NULL);
        if (!cuda_check(c, result, t->commands[l->command].name, err))
            return false;
    }
    return true;
}

bool cuda_tape_play(struct device *d, struct tape *t, const struct buffer *step, uint32_t first,
                    uint32_t last, struct err *err)
{
    struct cuda *c = (struct cuda *)d;
    struct cuda_tape *n = t->native;
    cu_address at = (cu_address)(uintptr_t)step->native;

    if (!cuda_use(c, err))
        return false;
    d->counters.submissions++;
    d->counters.commands += last - first;
    uint32_t segment = n->plan.n_products == 0 ? tape_segment_of(t, first, last) : UINT32_MAX;
    if (segment != UINT32_MAX)
        return cuda_tape_prepare(c, t, segment, at, err) &&
               cuda_check(c, c->cu->graph_launch(n->graphs[segment], c->stream), "a step", err);
    drop_graphs(c, t); // their arguments are about to change
    cuda_tape_step_set(n, at);
    return play_range(c, t, first, last, err);
}
