// bring.c - copies to a GPU from any thread, and back, on a stream of their own: KV pages that come from
// elsewhere while answers go on, and pages that go. They wait for what was queued before, since a page may
// have had another use, and for nothing that is queued later. The thread sleeps until they are there: once
// for as many pieces as the room takes.
#include <string.h>
#include "device/cuda/cuda_internal.h"

enum { BESIDE_BYTES = 4 << 20 };

static bool begin(struct cuda *c, struct err *err)
{
    struct cuda_beside *b = &c->beside;
    const struct driver *cu = c->cu;
    void *room = NULL;

    if (!cuda_use(c, err) ||
        (!b->stream &&
         !cuda_check(c, cu->stream_create(&b->stream, CU_STREAM_NON_BLOCKING), "a stream", err)) ||
        (!b->behind && !cuda_check(c, cu->event_create(&b->behind, CU_EVENT_NO_TIMING), "an event", err)) ||
        (!b->done && !cuda_check(c, cu->event_create(&b->done, CU_EVENT_NO_TIMING | CU_EVENT_BLOCKING_SYNC),
                                 "an event", err)))
        return false;
    if (!b->room &&
        !cuda_check(c, cu->host_alloc(&room, BESIDE_BYTES, CU_HOST_PORTABLE), "pinned memory", err))
        return false;
    b->room = b->room ? b->room : room;
    return cuda_check(c, cu->event_record(b->behind, c->stream), "an event", err) &&
           cuda_check(c, cu->stream_follow(b->stream, b->behind, 0), "an event", err);
}

static bool arrive(struct cuda *c, struct err *err)
{
    struct cuda_beside *b = &c->beside;

    b->used = 0;
    return cuda_check(c, c->cu->event_record(b->done, b->stream), "a copy to the device", err) &&
           cuda_check(c, c->cu->event_wait(b->done), "a copy to the device", err);
}

static cu_address address_of(const struct device_piece *p)
{
    return (cu_address)(uintptr_t)p->buffer->native + p->offset;
}

static bool copy(struct cuda *c, const struct device_piece *p, struct err *err)
{
    struct cuda_beside *b = &c->beside;

    for (uint64_t at = 0, n; at < p->bytes; at += n) {
        if (b->used == BESIDE_BYTES && !arrive(c, err))
            return false;
        n = p->bytes - at < BESIDE_BYTES - b->used ? p->bytes - at : BESIDE_BYTES - b->used;
        memcpy(b->room + b->used, (const unsigned char *)p->host + at, n);
        if (!cuda_check(c, c->cu->write(address_of(p) + at, b->room + b->used, n, b->stream),
                        "a copy to the device", err))
            return false;
        b->used += n;
    }
    return true;
}

bool cuda_bring(struct device *d, const struct device_piece *pieces, uint32_t n, struct err *err)
{
    struct cuda *c = (struct cuda *)d;

    pthread_mutex_lock(&c->beside.lock);
    bool ok = begin(c, err);
    for (uint32_t i = 0; i < n && ok; i++)
        ok = copy(c, &pieces[i], err);
    if (c->beside.done) // the room is read until then, also after an error
        ok = arrive(c, ok ? err : NULL) && ok;
    pthread_mutex_unlock(&c->beside.lock);
    return ok;
}

// What is read goes on here.
struct gathered {
    const struct device_piece *piece;
    uint64_t at; // bytes of it
};

// Takes out of the room what has been read to it.
static bool empty(struct cuda *c, struct gathered *to, struct err *err)
{
    uint64_t used = c->beside.used;

    if (!arrive(c, err))
        return false;
    for (uint64_t at = 0, n; at < used; at += n) {
        n = to->piece->bytes - to->at < used - at ? to->piece->bytes - to->at : used - at;
        memcpy((unsigned char *)to->piece->host + to->at, c->beside.room + at, n);
        to->at += n;
        if (to->at == to->piece->bytes)
            *to = (struct gathered){ to->piece + 1, 0 };
    }
    return true;
}

static bool read_back(struct cuda *c, const struct device_piece *p, struct gathered *to, struct err *err)
{
    struct cuda_beside *b = &c->beside;

    for (uint64_t at = 0, n; at < p->bytes; at += n) {
        if (b->used == BESIDE_BYTES && !empty(c, to, err))
            return false;
        n = p->bytes - at < BESIDE_BYTES - b->used ? p->bytes - at : BESIDE_BYTES - b->used;
        if (!cuda_check(c, c->cu->read(b->room + b->used, address_of(p) + at, n, b->stream),
                        "a copy to the host", err))
            return false;
        b->used += n;
    }
    return true;
}

bool cuda_gather(struct device *d, const struct device_piece *pieces, uint32_t n, struct err *err)
{
    struct cuda *c = (struct cuda *)d;
    struct gathered to = { pieces, 0 };

    pthread_mutex_lock(&c->beside.lock);
    bool ok = begin(c, err);
    for (uint32_t i = 0; i < n && ok; i++)
        ok = read_back(c, &pieces[i], &to, err);
    ok = ok && empty(c, &to, err);
    if (!ok && c->beside.done) // the room is written until then
        arrive(c, NULL);
    pthread_mutex_unlock(&c->beside.lock);
    return ok;
}

void cuda_beside_close(struct cuda *c)
{
    struct cuda_beside *b = &c->beside;

    if (b->room)
        c->cu->host_free(b->room);
    if (b->behind)
        c->cu->event_destroy(b->behind);
    if (b->done)
        c->cu->event_destroy(b->done);
    if (b->stream)
        c->cu->stream_destroy(b->stream);
}
