// emu_encoder.c - MTLComputeCommandEncoder and MTLBlitCommandEncoder: every argument is checked where it is
// given.
#include "emu.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_SET_BYTES = 4096, BARRIER_BUFFERS = 1, BARRIER_ALL = 7, STORAGE_PRIVATE = 2 };

static bool is_open(struct encoder_object *e, const char *what)
{
    if (e->ended)
        emu_misuse("%s after endEncoding", what);
    return !e->ended;
}

static bool index_is_known(ns_uint index, const char *what)
{
    if (index >= MSL_BUFFERS)
        emu_misuse("%s: index %lu; at most %d", what, index, MSL_BUFFERS - 1);
    return index < MSL_BUFFERS;
}

static void encoder_pipeline(struct encoder_object *e, selector s, struct pipeline_object *p)
{
    (void)s;
    if (!is_open(e, "setComputePipelineState"))
        return;
    if (!p || p->object.isa != &class_MTLComputePipelineState) {
        emu_misuse("setComputePipelineState: not a pipeline");
        return;
    }
    commands_use(e->commands, p);
    e->current.pipeline = p;
}

static void bytes_drop(struct emu_binding *b)
{
    free(b->bytes);
    *b = (struct emu_binding){ 0 };
}

static bool offset_fits(const struct buffer_object *b, ns_uint offset)
{
    if (offset < b->bytes)
        return true;
    emu_misuse("offset %lu of a buffer of %zu bytes", offset, b->bytes);
    return false;
}

static void encoder_buffer(struct encoder_object *e, selector s, struct buffer_object *b, ns_uint offset,
                           ns_uint index)
{
    (void)s;
    if (!is_open(e, "setBuffer") || !index_is_known(index, "setBuffer"))
        return;
    if (b && b->object.isa != &class_MTLBuffer) {
        emu_misuse("setBuffer: not a buffer");
        return;
    }
    if (b && !offset_fits(b, offset))
        return;
    bytes_drop(&e->current.bound[index]);
    e->current.bound[index] = (struct emu_binding){ .buffer = b, .offset = offset };
    commands_use(e->commands, b);
}

static void encoder_offset(struct encoder_object *e, selector s, ns_uint offset, ns_uint index)
{
    (void)s;
    if (!is_open(e, "setBufferOffset") || !index_is_known(index, "setBufferOffset"))
        return;
    if (!e->current.bound[index].buffer)
        emu_misuse("setBufferOffset: no buffer at index %lu", index);
    else if (offset_fits(e->current.bound[index].buffer, offset))
        e->current.bound[index].offset = offset;
}

static void encoder_bytes(struct encoder_object *e, selector s, const void *bytes, ns_uint n, ns_uint index)
{
    struct emu_binding *b;

    (void)s;
    if (!is_open(e, "setBytes") || !index_is_known(index, "setBytes"))
        return;
    if (!bytes || n == 0 || n > MAX_SET_BYTES) {
        emu_misuse("setBytes: %lu bytes; expected 1 to %d", n, MAX_SET_BYTES);
        return;
    }
    b = &e->current.bound[index];
    bytes_drop(b);
    b->bytes = malloc(n);
    b->n_bytes = n;
    memcpy(b->bytes, bytes, n);
}

static void encoder_threadgroup(struct encoder_object *e, selector s, ns_uint bytes, ns_uint index)
{
    (void)s;
    if (!is_open(e, "setThreadgroupMemoryLength") || !index_is_known(index, "setThreadgroupMemoryLength"))
        return;
    if (bytes % 16 || bytes > MSL_THREADGROUP_BYTES)
        emu_misuse("setThreadgroupMemoryLength: %lu bytes; expected a multiple of 16, at most %d", bytes,
                   MSL_THREADGROUP_BYTES);
    else
        e->current.threadgroup_bytes[index] = bytes;
}

static bool arguments_are_bound(struct encoder_object *e)
{
    const struct msl_kernel *k = e->current.pipeline->function->kernel;

    for (int i = 0; i < k->n_bindings; i++) {
        const struct msl_binding *b = &k->bindings[i];
        const struct emu_binding *bound = &e->current.bound[b->index];
        if (b->source == MSL_BUFFER && !bound->buffer && !bound->bytes) {
            emu_misuse("%s: buffer(%d) is not bound", k->name, b->index);
            return false;
        }
        size_t bytes = bound->buffer ? bound->buffer->bytes - bound->offset : bound->n_bytes;
        if (b->source == MSL_BUFFER && bytes < k->least_bytes[i]) {
            emu_misuse("%s: buffer(%d) has %zu bytes; its type has %u", k->name, b->index, bytes,
                       k->least_bytes[i]);
            return false;
        }
        if (b->source == MSL_THREADGROUP && !e->current.threadgroup_bytes[b->index]) {
            emu_misuse("%s: threadgroup(%d) has no length", k->name, b->index);
            return false;
        }
    }
    return true;
}

static bool sizes_are_known(struct encoder_object *e, struct size3 groups, struct size3 threads)
{
    ns_uint n = threads.width * threads.height * threads.depth,
            declared = e->current.pipeline->function->kernel->max_threads;
    ns_uint most =
        declared && declared < (ns_uint)emu_knobs.max_threads ? declared : (ns_uint)emu_knobs.max_threads;
    const char *name = e->current.pipeline->function->kernel->name;

    if (!groups.width || !groups.height || !groups.depth || groups.width > 1u << 30 ||
        groups.height > 1u << 30 || groups.depth > 1u << 30 ||
        groups.width * groups.height * groups.depth >> 32)
        emu_misuse("%s: grid of %lu x %lu x %lu", name, groups.width, groups.height, groups.depth);
    else if (!n || n > most)
        emu_misuse("%s: %lu x %lu x %lu threads in a threadgroup; expected 1 to %lu", name, threads.width,
                   threads.height, threads.depth, most);
    else if (e->current.pipeline->whole_simdgroups && n % MSL_LANES)
        emu_misuse("%s: %lu threads; the pipeline was promised a multiple of %d", name, n, MSL_LANES);
    else
        return true;
    return false;
}

static void dispatch(struct encoder_object *e, struct size3 groups, struct size3 threads, struct size3 grid)
{
    struct command_record *r;

    if (!is_open(e, "dispatch"))
        return;
    if (!e->current.pipeline) {
        emu_misuse("dispatch without a pipeline");
        return;
    }
    if (!sizes_are_known(e, groups, threads) || !arguments_are_bound(e))
        return;
    r = commands_add(e->commands, COMMAND_DISPATCH);
    *r = e->current;
    r->kind = COMMAND_DISPATCH;
    r->groups = groups;
    r->threads = threads;
    r->grid = grid;
    r->concurrent = e->concurrent;
    for (int i = 0; i < MSL_BUFFERS; i++)
        if (r->bound[i].bytes) {
            r->bound[i].bytes = malloc(r->bound[i].n_bytes);
            memcpy(r->bound[i].bytes, e->current.bound[i].bytes, r->bound[i].n_bytes);
        }
}
static void encoder_dispatch(struct encoder_object *e, selector s, struct size3 groups, struct size3 threads)
{
    (void)s;
    dispatch(e, groups, threads, (struct size3){ 0, 0, 0 });
}
static void encoder_dispatch_threads(struct encoder_object *e, selector s, struct size3 grid,
                                     struct size3 threads)
{
    struct size3 groups = { 0, 0, 0 };

    (void)s;
    if (threads.width && threads.height && threads.depth)
        groups = (struct size3){ (grid.width + threads.width - 1) / threads.width,
                                 (grid.height + threads.height - 1) / threads.height,
                                 (grid.depth + threads.depth - 1) / threads.depth };
    dispatch(e, groups, threads, grid);
}

static void encoder_barrier(struct encoder_object *e, selector s, ns_uint scope)
{
    (void)s;
    if (!is_open(e, "memoryBarrierWithScope"))
        return;
    if (scope == 0 || scope > BARRIER_ALL) {
        emu_misuse("MTLBarrierScope %lu", scope);
        return;
    }
    emu_count(&emu_knobs.barriers, 1);
    if (scope & BARRIER_BUFFERS)
        commands_add(e->commands, COMMAND_BARRIER);
}

static void encoder_fence(struct encoder_object *e, selector s, struct emu_object *fence)
{
    (void)s;
    if (!is_open(e, "a fence"))
        return;
    if (!fence || fence->isa != &class_MTLFence)
        emu_misuse("not a fence");
    else
        commands_use(e->commands, fence);
}

static void encoder_end(struct encoder_object *e, selector s)
{
    (void)s;
    if (!is_open(e, "endEncoding"))
        return;
    e->ended = true;
    e->commands->open = NULL;
}

static void encoder_destroy(void *o)
{
    struct encoder_object *e = o;

    if (!e->ended)
        emu_misuse("an encoder is released before endEncoding");
    for (int i = 0; i < MSL_BUFFERS; i++)
        free(e->current.bound[i].bytes);
    emu_release(e->commands);
}
static void set_label(void *o, selector s, void *label)
{
    (void)o;
    (void)s;
    (void)label;
}
EMU_CLASS(MTLComputeCommandEncoder, &class_NSObject, struct encoder_object, encoder_destroy, true,
          METHOD("setComputePipelineState:", encoder_pipeline),
          METHOD("setBuffer:offset:atIndex:", encoder_buffer),
          METHOD("setBufferOffset:atIndex:", encoder_offset),
          METHOD("setBytes:length:atIndex:", encoder_bytes),
          METHOD("setThreadgroupMemoryLength:atIndex:", encoder_threadgroup),
          METHOD("dispatchThreadgroups:threadsPerThreadgroup:", encoder_dispatch),
          METHOD("dispatchThreads:threadsPerThreadgroup:", encoder_dispatch_threads),
          METHOD("memoryBarrierWithScope:", encoder_barrier), METHOD("updateFence:", encoder_fence),
          METHOD("waitForFence:", encoder_fence), METHOD("setLabel:", set_label),
          METHOD("endEncoding", encoder_end))

static bool range_fits(const struct buffer_object *b, ns_uint at, ns_uint n)
{
    if (!b || b->object.isa != &class_MTLBuffer)
        emu_misuse("a blit wants a buffer");
    else if (n == 0 || n > b->bytes || at > b->bytes - n)
        emu_misuse("a blit of %lu bytes at %lu; the buffer has %zu", n, at, b->bytes);
    else if (at % 4 || n % 4)
        emu_misuse("a blit of %lu bytes at %lu; multiples of 4 are expected", n, at);
    else
        return true;
    return false;
}

static void blit_copy(struct encoder_object *e, selector s, struct buffer_object *from, ns_uint from_at,
                      struct buffer_object *to, ns_uint to_at, ns_uint n)
{
    struct command_record *r;

    (void)s;
    if (!is_open(e, "copyFromBuffer") || !range_fits(from, from_at, n) || !range_fits(to, to_at, n))
        return;
    if (from == to && from_at < to_at + n && to_at < from_at + n) {
        emu_misuse("a blit within one buffer overlaps");
        return;
    }
    r = commands_add(e->commands, COMMAND_COPY);
    r->from = from;
    r->to = to;
    r->from_at = from_at;
    r->to_at = to_at;
    r->n_bytes = n;
    commands_use(e->commands, from);
    commands_use(e->commands, to);
    emu_count(&emu_knobs.blits, 1);
}

static void blit_fill(struct encoder_object *e, selector s, struct buffer_object *to, struct emu_range range,
                      uint8_t value)
{
    struct command_record *r;

    (void)s;
    if (!is_open(e, "fillBuffer") || !range_fits(to, range.location, range.length))
        return;
    r = commands_add(e->commands, COMMAND_FILL);
    r->to = to;
    r->to_at = range.location;
    r->n_bytes = range.length;
    r->value = value;
    commands_use(e->commands, to);
    emu_count(&emu_knobs.blits, 1);
}
EMU_CLASS(MTLBlitCommandEncoder, &class_NSObject, struct encoder_object, encoder_destroy, true,
          METHOD("copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:", blit_copy),
          METHOD("fillBuffer:range:value:", blit_fill), METHOD("updateFence:", encoder_fence),
          METHOD("waitForFence:", encoder_fence), METHOD("setLabel:", set_label),
          METHOD("endEncoding", encoder_end))

static void *encoder_new(struct emu_class *class, struct commands_object *c, bool concurrent)
{
    struct encoder_object *e = emu_new(class);

    e->commands = emu_retain(c);
    e->concurrent = concurrent;
    c->open = e;
    commands_add(c, COMMAND_BEGIN);
    emu_count(&emu_knobs.encoders, 1);
    return emu_autorelease(e);
}

void *encoder_compute(struct commands_object *c, bool concurrent)
{
    return encoder_new(&class_MTLComputeCommandEncoder, c, concurrent);
}

void *encoder_blit(struct commands_object *c)
{
    return encoder_new(&class_MTLBlitCommandEncoder, c, false);
}
