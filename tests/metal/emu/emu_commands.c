// emu_commands.c - MTLCommandQueue and MTLCommandBuffer: commands are recorded, and carried out by one thread
// for each queue.
//
// Nothing runs before commit, and then later: delay_us makes it much later, so that a host which reads too
// early reads poison. Command buffers of a queue run in order. Inside a concurrent encoder only a barrier
// orders two dispatches; msl_check knows.
#include "emu.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { STATUS_NEW, STATUS_ENQUEUED, STATUS_COMMITTED, STATUS_SCHEDULED, STATUS_COMPLETED, STATUS_ERROR };
enum { BLOCK_HAS_COPY = 1 << 25, BLOCK_IS_GLOBAL = 1 << 28, ERROR_INTERNAL = 1, IN_FLIGHT = 64 };
extern void *_NSConcreteGlobalBlock[32], *_NSConcreteStackBlock[32];

struct handler_block {
    void *isa;
    int flags, reserved;
    void (*invoke)(struct handler_block *block, void *argument);
    struct {
        unsigned long reserved, bytes;
    } const *shape;
};

struct queue_object {
    struct emu_object object;
    pthread_t thread;
    struct commands_object *waiting[1024]; // a ring
    uint32_t first, n_waiting, n_alive;
    bool stop;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
// Queues take turns: a library has the constants of one dispatch at a time.
static pthread_mutex_t running = PTHREAD_MUTEX_INITIALIZER;

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// ---- carrying out
static bool is_usable(const struct commands_object *c, const void *object, const char *what)
{
    if (!c->retains && object && emu_is_dead(object)) {
        emu_misuse("a command buffer without references uses a %s that was released", what);
        return false;
    }
    return true;
}

static bool dispatch_run(const struct commands_object *c, struct command_record *r, char *error)
{
    struct msl_dispatch d = { .kernel = r->pipeline->function->kernel };
    struct function_object *f = r->pipeline->function;
    bool usable = is_usable(c, r->pipeline, "pipeline");

    for (int i = 0; i < MSL_BUFFERS && usable; i++) {
        struct emu_binding *b = &r->bound[i];
        if (b->buffer && !(usable = is_usable(c, b->buffer, "buffer")))
            break;
        d.buffers[i] = b->buffer ? b->buffer->at + b->offset : b->bytes;
        d.buffer_bytes[i] = b->buffer ? b->buffer->bytes - b->offset : b->n_bytes;
        d.threadgroup_bytes[i] = r->threadgroup_bytes[i];
    }
    if (!usable) {
        snprintf(error, MSL_ERROR_BYTES, "%s uses an object that was released", d.kernel->name);
        return false;
    }
    memcpy(d.groups,
           (uint32_t[]){ (uint32_t)r->groups.width, (uint32_t)r->groups.height, (uint32_t)r->groups.depth },
           sizeof d.groups);
    memcpy(
        d.threads,
        (uint32_t[]){ (uint32_t)r->threads.width, (uint32_t)r->threads.height, (uint32_t)r->threads.depth },
        sizeof d.threads);
    memcpy(d.grid, (uint32_t[]){ (uint32_t)r->grid.width, (uint32_t)r->grid.height, (uint32_t)r->grid.depth },
           sizeof d.grid);
    d.check = msl_library_is_checked(f->library->library);
    pthread_mutex_lock(&running);
    if (!r->concurrent)
        msl_check_order();
    msl_library_specialize(f->library->library, f->values, f->n_values);
    emu_count(&emu_knobs.dispatches, 1);
    bool ok = msl_run(&d, error);
    pthread_mutex_unlock(&running);
    return ok;
}

static bool record_run(const struct commands_object *c, struct command_record *r, char *error)
{
    if (r->kind == COMMAND_DISPATCH)
        return dispatch_run(c, r, error);
    if (r->kind == COMMAND_BEGIN || r->kind == COMMAND_BARRIER)
        msl_check_order();
    else if (r->kind == COMMAND_COPY && is_usable(c, r->from, "buffer") && is_usable(c, r->to, "buffer"))
        memmove(r->to->at + r->to_at, r->from->at + r->from_at, r->n_bytes);
    else if (r->kind == COMMAND_FILL && is_usable(c, r->to, "buffer"))
        memset(r->to->at + r->to_at, r->value, r->n_bytes);
    else if (r->kind == COMMAND_SIGNAL)
        event_signal(r->event, r->event_value);
    else if (r->kind == COMMAND_WAIT)
        event_wait(r->event, r->event_value);
    else if (r->kind == COMMAND_CALL && !r->call(r->object)) {
        snprintf(error, MSL_ERROR_BYTES, "a product of the vendor's library failed");
        return false;
    }
    return true;
}

static void commands_fail(struct commands_object *c, const char *why)
{
    void *pool = objc_autoreleasePoolPush(), *error = NULL;

    emu_error(&error, ERROR_INTERNAL, "%s", why);
    c->error = emu_retain(error);
    objc_autoreleasePoolPop(pool);
}

static void commands_run(struct commands_object *c)
{
    char error[MSL_ERROR_BYTES] = "";
    bool ok = true;

    if (emu_knobs.delay_us)
        usleep((useconds_t)emu_knobs.delay_us);
    c->started = seconds();
    if (emu_knobs.fail_command_buffer && --emu_knobs.fail_command_buffer == 0) {
        ok = false;
        snprintf(error, sizeof error, "the test wants this command buffer to fail");
    }
    for (uint32_t i = 0; i < c->n_records && ok; i++)
        ok = record_run(c, &c->records[i], error);
    msl_check_order();
    c->ended = seconds();
    if (!ok)
        commands_fail(c, error);
    for (uint32_t i = 0; i < c->n_used; i++)
        if (((struct emu_object *)c->used[i])->isa == &class_MTLBuffer && !c->retains)
            __atomic_sub_fetch(&((struct buffer_object *)c->used[i])->n_uses, 1, __ATOMIC_ACQ_REL);
    pthread_mutex_lock(&lock);
    c->status = ok ? STATUS_COMPLETED : STATUS_ERROR;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
    for (uint32_t i = 0; i < c->n_handlers; i++)
        c->handlers[i]->invoke(c->handlers[i], c);
    emu_release(c);
}

static void *queue_thread(void *arg)
{
    struct queue_object *q = arg;

    pthread_mutex_lock(&lock);
    while (!q->stop || q->n_waiting) {
        if (!q->n_waiting) {
            pthread_cond_wait(&change, &lock);
            continue;
        }
        struct commands_object *c = q->waiting[q->first++ % 1024];
        q->n_waiting--;
        pthread_mutex_unlock(&lock);
        commands_run(c);
        pthread_mutex_lock(&lock);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

// ---- queue
static void queue_destroy(void *o)
{
    struct queue_object *q = o;

    pthread_mutex_lock(&lock);
    q->stop = true;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
    pthread_join(q->thread, NULL);
}
static void *commands_new(struct queue_object *q, bool retains);
static void *queue_commands(struct queue_object *q, selector s)
{
    (void)s;
    return commands_new(q, true);
}
static void *queue_commands_unretained(struct queue_object *q, selector s)
{
    (void)s;
    return commands_new(q, false);
}
static void queue_residency(struct queue_object *q, selector s, struct emu_object *set)
{
    (void)q;
    (void)s;
    if (!set || set->isa != &class_MTLResidencySet)
        emu_misuse("addResidencySet: not a residency set");
}
static void set_label(void *o, selector s, void *label)
{
    (void)o;
    (void)s;
    (void)label;
}
EMU_CLASS(MTLCommandQueue, &class_NSObject, struct queue_object, queue_destroy, true,
          METHOD("commandBuffer", queue_commands),
          METHOD("commandBufferWithUnretainedReferences", queue_commands_unretained),
          METHOD("addResidencySet:", queue_residency), METHOD("setLabel:", set_label))

void *queue_new(void *device, selector s)
{
    struct queue_object *q = emu_new(&class_MTLCommandQueue);

    (void)device;
    (void)s;
    pthread_create(&q->thread, NULL, queue_thread, q);
    return q;
}

// ---- command buffer
static void commands_destroy(void *o)
{
    struct commands_object *c = o;

    if (c->status == STATUS_NEW && c->n_records)
        emu_misuse("a command buffer with %u commands is released and was never committed", c->n_records);
    for (uint32_t i = 0; i < c->n_records; i++)
        for (int k = 0; k < MSL_BUFFERS; k++)
            free(c->records[i].bound[k].bytes);
    for (uint32_t i = 0; i < c->n_used && c->retains; i++)
        emu_release(c->used[i]);
    for (uint32_t i = 0; i < c->n_handlers; i++)
        if (!(c->handlers[i]->flags & BLOCK_IS_GLOBAL))
            free(c->handlers[i]);
    emu_release(c->error);
    free(c->used);
    free(c->records);
    __atomic_sub_fetch(&c->queue->n_alive, 1, __ATOMIC_ACQ_REL);
}

bool commands_are_open(struct commands_object *c, const char *what)
{
    if (c->status != STATUS_NEW)
        emu_misuse("%s after commit", what);
    else if (c->open)
        emu_misuse("%s while an encoder is open", what);
    else
        return true;
    return false;
}

void commands_use(struct commands_object *c, void *object)
{
    if (!object)
        return;
    for (uint32_t i = 0; i < c->n_used; i++)
        if (c->used[i] == object)
            return;
    if (c->n_used == c->used_capacity) {
        c->used_capacity = 2 * c->used_capacity + 64;
        c->used = realloc(c->used, sizeof *c->used * c->used_capacity);
    }
    c->used[c->n_used++] = c->retains ? emu_retain(object) : object;
    if (!c->retains && ((struct emu_object *)object)->isa == &class_MTLBuffer)
        __atomic_add_fetch(&((struct buffer_object *)object)->n_uses, 1, __ATOMIC_ACQ_REL);
}

struct command_record *commands_add(struct commands_object *c, enum command_kind kind)
{
    struct command_record *r;

    if (c->n_records == c->capacity) {
        c->capacity = 2 * c->capacity + 32;
        c->records = realloc(c->records, sizeof *c->records * c->capacity);
    }
    r = &c->records[c->n_records++];
    memset(r, 0, sizeof *r);
    r->kind = kind;
    return r;
}

static void *commands_compute_with(struct commands_object *c, selector s, ns_uint type)
{
    (void)s;
    if (type > 1)
        emu_misuse("MTLDispatchType %lu", type);
    return commands_are_open(c, "computeCommandEncoder") ? encoder_compute(c, type == 1) : NULL;
}
static void *commands_compute(struct commands_object *c, selector s)
{
    return commands_compute_with(c, s, 0);
}
static void *commands_blit(struct commands_object *c, selector s)
{
    (void)s;
    return commands_are_open(c, "blitCommandEncoder") ? encoder_blit(c) : NULL;
}
static void commands_event(struct commands_object *c, struct event_object *e, uint64_t value,
                           enum command_kind kind, const char *what)
{
    if (!e || !commands_are_open(c, what)) {
        if (!e)
            emu_misuse("%s: nil", what);
        return;
    }
    struct command_record *r = commands_add(c, kind);
    r->event = (struct event_object *)e;
    r->event_value = value;
    commands_use(c, e);
}
static void commands_signal(struct commands_object *c, selector s, struct event_object *e, uint64_t value)
{
    (void)s;
    commands_event(c, e, value, COMMAND_SIGNAL, "encodeSignalEvent");
}
static void commands_wait_for(struct commands_object *c, selector s, struct event_object *e, uint64_t value)
{
    (void)s;
    commands_event(c, e, value, COMMAND_WAIT, "encodeWaitForEvent");
}
static void commands_handler(struct commands_object *c, selector s, struct handler_block *block)
{
    struct handler_block *kept = block;

    (void)s;
    if (c->status != STATUS_NEW) {
        emu_misuse("addCompletedHandler after commit");
        return;
    }
    if (!block || (block->isa != _NSConcreteGlobalBlock && block->isa != _NSConcreteStackBlock) ||
        !block->shape || (block->flags & BLOCK_HAS_COPY) || c->n_handlers == 16) {
        emu_misuse("addCompletedHandler: this is no block");
        return;
    }
    if (!(block->flags & BLOCK_IS_GLOBAL)) {
        kept = malloc(block->shape->bytes);
        memcpy(kept, block, block->shape->bytes);
    }
    c->handlers[c->n_handlers++] = kept;
}
static void commands_commit(struct commands_object *c, selector s)
{
    struct queue_object *q = c->queue;

    (void)s;
    if (!commands_are_open(c, "commit"))
        return;
    emu_retain(c);
    emu_count(&emu_knobs.command_buffers, 1);
    pthread_mutex_lock(&lock);
    c->status = STATUS_COMMITTED;
    q->waiting[(q->first + q->n_waiting++) % 1024] = c;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
}
static void commands_wait(struct commands_object *c, selector s)
{
    (void)s;
    if (c->status < STATUS_COMMITTED) {
        emu_misuse("waitUntilCompleted before commit");
        return;
    }
    pthread_mutex_lock(&lock);
    while (c->status < STATUS_COMPLETED)
        pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
}
static ns_uint commands_status(struct commands_object *c, selector s)
{
    (void)s;
    return (ns_uint)__atomic_load_n(&c->status, __ATOMIC_ACQUIRE);
}
static void *commands_error(struct commands_object *c, selector s)
{
    (void)s;
    return c->error;
}
static double commands_started(struct commands_object *c, selector s)
{
    (void)s;
    if (c->status < STATUS_COMPLETED)
        emu_misuse("GPUStartTime before completion");
    return c->started;
}
static double commands_ended(struct commands_object *c, selector s)
{
    (void)s;
    if (c->status < STATUS_COMPLETED)
        emu_misuse("GPUEndTime before completion");
    return c->ended;
}
EMU_CLASS(MTLCommandBuffer, &class_NSObject, struct commands_object, commands_destroy, true,
          METHOD("computeCommandEncoder", commands_compute),
          METHOD("computeCommandEncoderWithDispatchType:", commands_compute_with),
          METHOD("blitCommandEncoder", commands_blit), METHOD("encodeSignalEvent:value:", commands_signal),
          METHOD("encodeWaitForEvent:value:", commands_wait_for),
          METHOD("addCompletedHandler:", commands_handler), METHOD("commit", commands_commit),
          METHOD("waitUntilCompleted", commands_wait), METHOD("status", commands_status),
          METHOD("error", commands_error), METHOD("GPUStartTime", commands_started),
          METHOD("GPUEndTime", commands_ended), METHOD("setLabel:", set_label))

// Metal blocks when too many command buffers of a queue are alive; here that is an error, as it would be a
// deadlock in one thread.
static void *commands_new(struct queue_object *q, bool retains)
{
    struct commands_object *c = emu_new(&class_MTLCommandBuffer);

    if (__atomic_add_fetch(&q->n_alive, 1, __ATOMIC_ACQ_REL) > 4 * IN_FLIGHT)
        emu_misuse("more than %d command buffers of a queue are alive", 4 * IN_FLIGHT);
    c->queue = q;
    c->retains = retains;
    return emu_autorelease(c);
}
