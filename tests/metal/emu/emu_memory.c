// emu_memory.c - MTLBuffer, MTLResidencySet, MTLSharedEvent, MTLFence.
//
// New memory is filled with 0xCD: nothing may rely on zeros. Private buffers give no pointer. A buffer over
// the caller's memory wants whole pages that exist.
#include "emu.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { STORAGE_SHARED, STORAGE_MANAGED, STORAGE_PRIVATE, POISON = 0xCD };

ns_uint buffer_storage(const struct buffer_object *b)
{
    return b->options >> 4 & 15;
}

struct memory_block {
    void *isa;
    int flags, reserved;
    void *invoke;
};

static void buffer_destroy(void *o)
{
    struct buffer_object *b = o;

    if (__atomic_load_n(&b->n_uses, __ATOMIC_ACQUIRE))
        emu_misuse(
            "a buffer of %zu bytes is released while a command buffer without references still uses it",
            b->bytes);
    msl_check_forget(b->at, b->bytes);
    emu_count(&emu_knobs.buffers, -1);
    if (b->mapped) {
        emu_count(&emu_device.n_bytes, -(long)b->bytes);
        munmap(b->at, b->mapped);
    } else if (b->deallocator) {
        struct memory_block *block = b->deallocator;
        ((void (*)(void *, void *, ns_uint))block->invoke)(block, b->at, b->bytes);
    }
}
static void *buffer_contents(struct buffer_object *b, selector s)
{
    (void)s;
    if (buffer_storage(b) != STORAGE_PRIVATE)
        return b->at;
    emu_misuse("contents of a private buffer");
    return NULL;
}
static ns_uint buffer_length(struct buffer_object *b, selector s)
{
    (void)s;
    return b->bytes;
}
static void set_label(void *o, selector s, void *label)
{
    (void)o;
    (void)s;
    (void)label;
}
EMU_CLASS(MTLBuffer, &class_NSObject, struct buffer_object, buffer_destroy, true,
          METHOD("contents", buffer_contents), METHOD("length", buffer_length),
          METHOD("setLabel:", set_label))

static bool options_are_known(ns_uint bytes, ns_uint options)
{
    ns_uint storage = options >> 4 & 15, tracking = options >> 8 & 3;

    if (bytes == 0 || bytes > (ns_uint)emu_knobs.memory_mb << 19)
        emu_misuse("a buffer of %lu bytes; expected 1 to %lu", bytes, (ns_uint)emu_knobs.memory_mb << 19);
    else if ((options & ~0x3fful) || (options & 15) > 1 || storage > STORAGE_PRIVATE || tracking > 2)
        emu_misuse("options 0x%lx of a buffer are not known", options);
    else if (storage == STORAGE_MANAGED)
        emu_misuse("managed storage: there is none on Apple silicon");
    else
        return true;
    return false;
}

static struct buffer_object *adopt(void *at, ns_uint bytes, ns_uint options)
{
    struct buffer_object *b = emu_new(&class_MTLBuffer);

    b->at = at;
    b->bytes = bytes;
    b->options = options;
    emu_count(&emu_knobs.buffers, 1);
    return b;
}

void *buffer_new(void *d, selector s, ns_uint bytes, ns_uint options)
{
    size_t mapped = (bytes + 16383) & ~(size_t)16383;
    void *at;

    (void)d;
    (void)s;
    if (!options_are_known(bytes, options))
        return NULL;
    at = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    memset(at, POISON, bytes < 1 << 26 ? bytes : 1 << 26);
    struct buffer_object *b = adopt(at, bytes, options);
    b->mapped = mapped;
    emu_count(&emu_device.n_bytes, (long)bytes);
    return b;
}

void *buffer_with_bytes(void *d, selector s, const void *from, ns_uint bytes, ns_uint options)
{
    struct buffer_object *b = buffer_new(d, s, bytes, options);

    if (b && buffer_storage(b) == STORAGE_PRIVATE)
        emu_misuse("newBufferWithBytes for a private buffer");
    else if (b)
        memcpy(b->at, from, bytes);
    return b;
}

void *buffer_over(void *d, selector s, void *at, ns_uint bytes, ns_uint options, void *deallocator)
{
    ns_uint page = (ns_uint)emu_knobs.page;
    static unsigned char present[1 << 20];

    (void)d;
    (void)s;
    if (!options_are_known(bytes, options))
        return NULL;
    if (buffer_storage(&(struct buffer_object){ .options = options }) != STORAGE_SHARED) {
        emu_misuse("newBufferWithBytesNoCopy wants shared storage");
        return NULL;
    }
    if ((ns_uint)at % page || bytes % page)
        return NULL;
    for (ns_uint done = 0; done < bytes; done += sizeof present * 4096) {
        ns_uint n = bytes - done < sizeof present * 4096 ? bytes - done : sizeof present * 4096;
        if (mincore((char *)at + done, n, present)) {
            emu_misuse("newBufferWithBytesNoCopy: %lu bytes, not all of them are mapped", bytes);
            return NULL;
        }
    }
    struct buffer_object *b = adopt(at, bytes, options);
    b->deallocator = deallocator;
    return b;
}

struct residency_object {
    struct emu_object object;
    struct emu_array members;
    bool changed;
};
static void residency_destroy(void *o)
{
    emu_array_destroy(&((struct residency_object *)o)->members);
}
static ns_uint residency_find(struct residency_object *r, void *o)
{
    ns_uint i = 0;

    while (i < r->members.n_items && r->members.items[i] != o)
        i++;
    return i;
}
static void residency_add(struct residency_object *r, selector s, void *o)
{
    struct emu_array *m = &r->members;

    (void)s;
    r->changed = true;
    if (residency_find(r, o) < m->n_items)
        return;
    m->items = realloc(m->items, (m->n_items + 1) * sizeof *m->items);
    m->items[m->n_items++] = emu_retain(o);
}
static void residency_remove(struct residency_object *r, selector s, void *o)
{
    ns_uint i = residency_find(r, o);

    (void)s;
    r->changed = true;
    if (i == r->members.n_items) {
        emu_misuse("removeAllocation: it is not in the residency set");
        return;
    }
    emu_release(o);
    r->members.items[i] = r->members.items[--r->members.n_items];
}
static void residency_commit(struct residency_object *r, selector s)
{
    (void)s;
    r->changed = false;
}
static void residency_request(struct residency_object *r, selector s)
{
    (void)r;
    (void)s;
}
static ns_uint residency_count(struct residency_object *r, selector s)
{
    (void)s;
    return r->members.n_items;
}
EMU_CLASS(MTLResidencySet, &class_NSObject, struct residency_object, residency_destroy, true,
          METHOD("addAllocation:", residency_add), METHOD("removeAllocation:", residency_remove),
          METHOD("commit", residency_commit), METHOD("requestResidency", residency_request),
          METHOD("endResidency", residency_request), METHOD("allocationCount", residency_count))
static void set_number(void *o, selector s, ns_uint n)
{
    (void)o;
    (void)s;
    (void)n;
}
EMU_CLASS(MTLResidencySetDescriptor, &class_NSObject, struct emu_object, NULL, false,
          METHOD("setInitialCapacity:", set_number), METHOD("setLabel:", set_label))

void *residency_new(void *d, selector s, void *descriptor, void **error)
{
    (void)d;
    (void)s;
    (void)error;
    if (!descriptor)
        emu_misuse("newResidencySetWithDescriptor: nil");
    return descriptor ? emu_new(&class_MTLResidencySet) : NULL;
}

struct event_object {
    struct emu_object object;
    uint64_t value;
};
static pthread_mutex_t event_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t event_change = PTHREAD_COND_INITIALIZER;

void event_signal(struct event_object *e, uint64_t value)
{
    pthread_mutex_lock(&event_lock);
    if (value <= e->value)
        emu_misuse("an event is signalled with %llu and stands at %llu", (unsigned long long)value,
                   (unsigned long long)e->value);
    e->value = value;
    pthread_cond_broadcast(&event_change);
    pthread_mutex_unlock(&event_lock);
}
void event_wait(struct event_object *e, uint64_t value)
{
    pthread_mutex_lock(&event_lock);
    while (e->value < value)
        pthread_cond_wait(&event_change, &event_lock);
    pthread_mutex_unlock(&event_lock);
}
static uint64_t event_value(struct event_object *e, selector s)
{
    (void)s;
    return __atomic_load_n(&e->value, __ATOMIC_ACQUIRE);
}
static void event_set(struct event_object *e, selector s, uint64_t value)
{
    (void)s;
    event_signal(e, value);
}
static bool event_wait_until(struct event_object *e, selector s, uint64_t value, uint64_t ms)
{
    struct timespec until;
    int status = 0;

    (void)s;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(ms / 1000);
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&event_lock);
    while (e->value < value && !status)
        status = pthread_cond_timedwait(&event_change, &event_lock, &until);
    pthread_mutex_unlock(&event_lock);
    return !status;
}
EMU_CLASS(MTLSharedEvent, &class_NSObject, struct event_object, NULL, true,
          METHOD("signaledValue", event_value), METHOD("setSignaledValue:", event_set),
          METHOD("waitUntilSignaledValue:timeoutMS:", event_wait_until), METHOD("setLabel:", set_label))
EMU_CLASS(MTLFence, &class_NSObject, struct emu_object, NULL, true, METHOD("setLabel:", set_label))

void *event_new(void *d, selector s)
{
    (void)d;
    (void)s;
    return emu_new(&class_MTLSharedEvent);
}
void *fence_new(void *d, selector s)
{
    (void)d;
    (void)s;
    return emu_new(&class_MTLFence);
}
