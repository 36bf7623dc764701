// metal_play.c - tapes on an Apple GPU.
//
// seal turns the commands into launches. play encodes them: one concurrent encoder per command buffer, with a
// barrier where the tape marks one and between the launches of a command, and nowhere else. The first command
// buffer is committed early, so that the GPU has work while the rest is encoded. The last one stays open for
// what follows (metal_internal.h). The system keeps the order between command buffers.
#include <string.h>
#include "base/mem.h"
#include "device/metal/metal_internal.h"

enum { FIRST_COMMANDS = 16, LEAST_COMMANDS = 32, LEAST_SHARED = 16 };

struct metal_tape {
    struct metal_plan plan;
    uint32_t *first_launch; // [n_commands + 1]
    struct buffer private_memory;
};

const struct weight *metal_weight(const struct metal_plan *p, uint32_t operand)
{
    return p->command->operands[operand].weight;
}

bool metal_has(const struct metal_plan *p, uint32_t operand)
{
    return p->command->operands[operand].buffer != NULL;
}

struct metal_launch *metal_launch_new(struct metal_plan *p)
{
    if (p->n_launches == p->capacity) {
        uint32_t capacity = p->capacity ? 2 * p->capacity : 64;
        struct metal_launch *grown = mem_realloc(p->launches, capacity * sizeof *grown);
        if (!grown) {
            err_memory(&p->error, "a tape's launches");
            return NULL;
        }
        p->launches = grown;
        p->capacity = capacity;
    }
    struct metal_launch *l = &p->launches[p->n_launches++];
    *l = (struct metal_launch){ 0 };
    return l;
}

static bool fits(struct metal_plan *p, const struct metal_kernel *k, const struct metal_pipeline *pipeline)
{
    CHECK(k->grid[0] > 0 && k->grid[1] > 0 && k->grid[2] > 0 && k->threads > 0 && k->threads % 32 == 0);
    if (k->threads > pipeline->max_threads)
        return err_set(&p->error, ERR_UNSUPPORTED, "%s wants %u threads, this GPU gives it %u", k->name,
                       k->threads, pipeline->max_threads);
    if (k->shared + pipeline->static_shared > p->device.shared_bytes)
        return err_set(&p->error, ERR_UNSUPPORTED, "%s wants %u bytes of threadgroup memory, this GPU has %u",
                       k->name, k->shared + pipeline->static_shared, p->device.shared_bytes);
    return true;
}

void metal_launch_add(struct metal_plan *p, const struct metal_kernel *kernel, const void *args,
                      uint32_t args_bytes)
{
    CHECK(args_bytes > 0 && args_bytes <= METAL_ARGS_BYTES && kernel->n_constants <= METAL_MAX_CONSTANTS);
    if (p->error.code != ERR_NONE)
        return;
    const struct metal_pipeline *pipeline = metal_pipeline(p->metal, kernel, &p->error);
    struct metal_launch *l = pipeline && fits(p, kernel, pipeline) ? metal_launch_new(p) : NULL;
    if (!l)
        return;
    *l = (struct metal_launch){ .pipeline = pipeline->handle,
                                .kernel = pipeline->key.name,
                                .grid = { kernel->grid[0], kernel->grid[1], kernel->grid[2] },
                                .threads = { kernel->threads, 1, 1 },
                                .shared = (kernel->shared + 15) / 16 * 16,
                                .args_bytes = args_bytes,
                                .barrier = !kernel->beside };
    memcpy(l->args, args, args_bytes);
}

// All commands share one private memory: two that use it need a barrier between them. in_use: one has used it
// since the last barrier.
static void mark_first(struct metal_plan *p, uint32_t first, bool *in_use)
{
    struct metal_launch *l = &p->launches[first];

    if (p->n_launches == first)
        return;
    l->barrier = p->command->barrier || (*in_use && p->private_bytes > 0);
    for (uint32_t i = first; i < p->n_launches; i++)
        if (p->launches[i].barrier)
            *in_use = false;
    *in_use |= p->private_bytes > 0;
}

static bool plan_commands(struct metal *m, struct tape *t, struct metal_tape *n, struct err *err)
{
    struct metal_plan *p = &n->plan;
    uint64_t most = 0;
    bool in_use = false;

    for (uint32_t i = 0; i < t->n_commands; i++) {
        n->first_launch[i] = p->n_launches;
        if (t->commands[i].border)
            continue;
        p->command = &t->commands[i];
        p->private_bytes = 0;
        if (t->commands[i].op >= m->table->n_ops || !m->table->plans[t->commands[i].op])
            err_set(&p->error, ERR_UNSUPPORTED, "the Metal device has no kernel for it");
        else
            m->table->plans[t->commands[i].op](p);
        if (p->error.code != ERR_NONE) {
            if (err)
                *err = p->error;
            return err_prefix(err, "%s: %s", t->commands[i].label, t->commands[i].name);
        }
        mark_first(p, n->first_launch[i], &in_use);
        most = p->private_bytes > most ? p->private_bytes : most;
    }
    n->first_launch[t->n_commands] = p->n_launches;
    return most == 0 || buffer_alloc_local(&m->device, most, &n->private_memory, err);
}

void metal_drop(struct device *d, struct tape *t)
{
    struct metal_tape *n = t->native;

    (void)d;
    if (!n)
        return;
    for (uint32_t i = 0; i < n->plan.n_launches; i++)
        metal_product_free(&n->plan.launches[i]);
    buffer_release(&n->private_memory);
    mem_free(n->plan.launches);
    mem_free(n->first_launch);
    mem_free(n);
    t->native = NULL;
}

const char *metal_tape_kernel(const struct tape *t, uint32_t command, uint32_t launch)
{
    const struct metal_tape *n = t->native;
    uint32_t at = n->first_launch[command] + launch;

    return at < n->first_launch[command + 1] ? n->plan.launches[at].kernel : NULL;
}

bool metal_seal(struct device *d, struct tape *t, struct err *err)
{
    struct metal *m = (struct metal *)d;
    struct metal_tape *n = mem_alloc(sizeof *n);
    void *pool = objc.objc_autoreleasePoolPush();

    t->native = n;
    if (n) {
        n->plan = (struct metal_plan){ .device = m->limits, .tape = t->limits, .metal = m };
        n->first_launch = mem_alloc_array((size_t)t->n_commands + 1, sizeof *n->first_launch);
    }
    bool ok = n && n->first_launch ? plan_commands(m, t, n, err) : err_memory(err, "a tape's launches");
    objc.objc_autoreleasePoolPop(pool);
    if (!ok)
        metal_drop(d, t);
    return ok;
}

static void bind(struct metal_encoding *e, const struct metal_buffer *b, uint64_t offset, uint32_t slot)
{
    offset += b->offset;
    if (e->bound[slot] == b->handle && e->offsets[slot] == offset)
        return;
    e->bound[slot] = b->handle;
    e->offsets[slot] = offset;
    mtl_set_buffer(e->encoder, b->handle, offset, slot);
}

static void bind_operands(struct metal *m, struct metal_encoding *e, const struct command *c)
{
    for (uint32_t i = 0; i < c->n_operands; i++) {
        const struct operand *o = &c->operands[i];
        bind(e, o->buffer ? o->buffer->native : &m->nothing, o->offset, METAL_AT_OPERANDS + i);
    }
}

// The memory stays set for the launches that follow, and counts beside what they declare themselves.
static void set_shared(struct metal_encoding *e, uint32_t bytes)
{
    uint32_t wanted = bytes || e->shared == 0 ? bytes : LEAST_SHARED;

    if (wanted != e->shared)
        mtl_set_shared(e->encoder, wanted, 0);
    e->shared = wanted;
}

static void encode_kernel(struct metal *m, const struct metal_launch *l)
{
    struct metal_encoding *e = &m->open;

    if (l->barrier && !e->empty) {
        mtl_barrier(e->encoder, MTL_BARRIER_BUFFERS);
        m->device.counters.barriers++;
    }
    e->empty = false;
    if (e->pipeline != l->pipeline)
        mtl_set_pipeline(e->encoder, l->pipeline);
    e->pipeline = l->pipeline;
    mtl_set_bytes(e->encoder, l->args, l->args_bytes, METAL_AT_ARGS);
    set_shared(e, l->shared);
    mtl_dispatch(e->encoder, l->grid, l->threads);
}

// One play, as it is encoded.
struct playing {
    struct metal *metal;
    const struct tape *tape;
    struct metal_buffer *step;
};

// An encoder in the open command buffer, with the bindings that all kernels of the tape share.
static void open_encoder(const struct playing *p)
{
    const struct metal_tape *n = p->tape->native;
    struct metal_encoding *e = &p->metal->open;

    *e = (struct metal_encoding){ .commands = e->commands, .empty = true };
    e->encoder = mtl_retain(mtl_compute_encoder(e->commands, MTL_DISPATCH_CONCURRENT));
    bind(e, p->step, 0, METAL_AT_STEP);
    bind(e, n->private_memory.native ? n->private_memory.native : &p->metal->nothing, 0, METAL_AT_PRIVATE);
}

static void encode_command(const struct playing *p, uint32_t command)
{
    const struct metal_tape *n = p->tape->native;
    struct metal *m = p->metal;

    for (uint32_t i = n->first_launch[command]; i < n->first_launch[command + 1]; i++) {
        const struct metal_launch *l = &n->plan.launches[i];
        m->device.counters.dispatches++;
        if (!l->pipeline) { // encodes itself
            metal_end_encoder(m);
            mtl_product_encode(l->product, m->open.commands, l->matrices[0], l->matrices[1], l->matrices[2]);
            continue;
        }
        if (!m->open.encoder)
            open_encoder(p);
        bind_operands(m, &m->open, &p->tape->commands[command]);
        encode_kernel(m, l);
    }
}

static bool encode_range(const struct playing *p, uint32_t first, uint32_t last, struct err *err)
{
    if (!metal_begin(p->metal, err))
        return false;
    for (uint32_t i = first; i < last; i++)
        encode_command(p, i);
    return true;
}

// The number of commands for the next command buffer, of `left`. The first is short, the others are equal.
static uint32_t share(const struct metal *m, uint32_t n, uint32_t left)
{
    uint32_t every = m->options.commit_every;

    if (every == 0)
        every = (n + METAL_COMMITS - 2) / (METAL_COMMITS - 1);
    if (every < LEAST_COMMANDS && m->options.commit_every == 0)
        every = LEAST_COMMANDS;
    if (left == n && every > FIRST_COMMANDS)
        every = FIRST_COMMANDS;
    return left < every ? left : every;
}

bool metal_play(struct device *d, struct tape *t, const struct buffer *step, uint32_t first, uint32_t last,
                struct err *err)
{
    struct playing p = { (struct metal *)d, t, step->native };
    void *pool = objc.objc_autoreleasePoolPush();
    bool ok = true;

    for (uint32_t i = first; i < last && ok;) {
        uint32_t n = share(p.metal, last - first, last - i);
        ok = encode_range(&p, i, i + n, err);
        i += n;
    }
    d->counters.commands += last - first;
    p.step->is_step = true;
    p.step->used = metal_last(p.metal);
    objc.objc_autoreleasePoolPop(pool);
    return ok;
}
