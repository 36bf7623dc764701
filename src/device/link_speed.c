// link_speed.c - see link_speed.h.
#include "device/link_speed.h"
#include <string.h>
#include "base/clock.h"
#include "base/mem.h"

enum { LARGE = 16 << 20, SMALL = 4096, TRIALS = 8 };

// Two ends of a link. The host's end is `room` alone, which a device may have pinned.
struct ends {
    struct buffer *a, *b; // NULL: the host
    unsigned char *room;
    bool sends;
};

// On return the bytes have arrived.
static bool move(const struct ends *e, uint64_t bytes, struct err *err)
{
    if (e->a && e->b && e->sends)
        return device_send(e->a->device, e->a, e->b, (struct device_span){ 0, bytes }, err) &&
               e->b->device->ops->wait(e->b->device, err);
    return (!e->a || buffer_read(e->a, 0, e->room, bytes, err)) &&
           (!e->b ||
            (buffer_write(e->b, 0, e->room, bytes, err) && e->b->device->ops->wait(e->b->device, err)));
}

// The shortest of some trials, in seconds.
static bool time_move(const struct ends *e, uint64_t bytes, double *seconds, struct err *err)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t i = 0; i < TRIALS; i++) {
        uint64_t begun = clock_ns();
        if (!move(e, bytes, err))
            return false;
        uint64_t ns = clock_ns() - begun;
        least = ns < least ? ns : least;
    }
    *seconds = (double)(least ? least : 1) * 1e-9;
    return true;
}

static bool measure(const struct ends *e, struct link_speed *speed, struct err *err)
{
    struct ends back = { e->b, e->a, e->room, e->sends };
    double there_s = 0, back_s = 0;

    if (!time_move(e, SMALL, &speed->latency_s, err) || !time_move(e, LARGE, &there_s, err) ||
        !time_move(&back, LARGE, &back_s, err))
        return false;
    speed->there = LARGE / there_s;
    speed->back = LARGE / back_s;
    return true;
}

bool link_speed_measure(struct device *a, struct device *b, struct link_speed *speed, struct err *err)
{
    struct buffer at[2] = { { 0 } };
    bool pins = b->queue && b->queue->pin, back_direct = false;
    unsigned char *room = pins ? b->queue->pin(b, LARGE) : mem_alloc(LARGE);

    *speed = (struct link_speed){ .sends = a && device_can_send(a, b) };
    bool ok = room ? (!a || buffer_alloc(a, LARGE, &at[0], err)) && buffer_alloc(b, LARGE, &at[1], err)
                   : err_memory(err, "a copy between devices");
    if (ok && speed->sends)
        ok = a->queue->connect(a, b, &speed->direct, err) && a->queue->connect(b, a, &back_direct, err);
    if (ok)
        memset(room, 1, LARGE);
    ok = ok && measure(&(struct ends){ a ? &at[0] : NULL, &at[1], room, speed->sends }, speed, err);
    buffer_release(&at[0]);
    buffer_release(&at[1]);
    if (pins)
        b->queue->unpin(b, room);
    else
        mem_free(room);
    return ok;
}
