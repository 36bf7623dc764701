// device_queue.h - a device whose plays continue while the caller goes on. Results are requested after one
// play and collected while the next one runs; what goes to other devices follows what was played.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct buffer;
struct communicator;
struct communicator_place;
struct communicator_shape;
struct device;
struct err;
struct tape;

struct device_span { // of a buffer
    uint64_t offset, bytes;
};
struct device_piece { // of a buffer, and its copy in the host's memory
    struct buffer *buffer;
    uint64_t offset, bytes;
    void *host;
};
enum { DEVICE_FETCHES = 10, DEVICE_FETCH_BYTES = 1 << 15 }; // copies in flight, and bytes of each
struct device_queue {
    // Copies the span of b to the host after everything submitted so far has finished. fetch: the copy's
    // index among those in flight, below DEVICE_FETCHES. Host-visible memory is not copied: later submissions
    // must not write the span until it is collected.
    bool (*fetch)(struct device *d, const struct buffer *b, struct device_span span, uint32_t fetch,
                  struct err *err);
    // Waits for that copy, but not for what was played after it.
    bool (*collect)(struct device *d, uint32_t fetch, void *to, uint64_t bytes, struct err *err);
    // These may be NULL. Copies bytes to the same place in a buffer of another device that has the same send,
    // after all that was played on both, and before what is played on either from now on. No thread waits.
    bool (*send)(struct device *d, const struct buffer *from, struct buffer *to, struct device_span span,
                 struct err *err);
    // Prepares that, and tries it. *direct: the copies do not go through the host.
    bool (*connect)(struct device *from, struct device *to, bool *direct, struct err *err);
    // Memory of the host that it copies from and to at full speed, zeroed or not; NULL: there is no more.
    void *(*pin)(struct device *d, uint64_t bytes);
    void (*unpin)(struct device *d, void *at);
    // From any thread, behind what was queued before and beside what is played then, which uses none of these
    // pieces. On return they are there.
    bool (*bring)(struct device *d, const struct device_piece *pieces, uint32_t n, struct err *err);
    // The other way, with one wait.
    bool (*gather)(struct device *d, const struct device_piece *pieces, uint32_t n, struct err *err);
    // Of devices that exchange by themselves (exchange_inbox.h) with those to which copies are direct: makes
    // a tape ready to be played with this step buffer, so that nothing of a play waits for what others play.
    bool (*prepare)(struct device *d, struct tape *t, const struct buffer *step, struct err *err);
    // Opens the communicator of these ranks, shape->n devices. NULL with a reason.
    struct communicator *(*communicator)(struct device *const *ranks, const struct communicator_shape *shape,
                                         struct err *err);
    // The same for one rank of several processes, which wait for each other; and the number for them all.
    struct communicator *(*join)(struct device *d, const struct communicator_place *place, struct err *err);
    bool (*meeting)(struct device *d, struct communicator_place *place, struct err *err);
};
