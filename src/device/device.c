// device.c - the calls that every device shares beside memory (buffer.c) and weights (weight.c).
#include "device/device.h"
#include <string.h>

bool device_fetch(struct device *d, const struct buffer *b, struct device_span span, uint32_t fetch,
                  struct err *err)
{
    CHECK(fetch < DEVICE_FETCHES && span.bytes <= DEVICE_FETCH_BYTES && span.offset <= b->bytes &&
          span.bytes <= b->bytes - span.offset);
    return d->queue->fetch(d, b, span, fetch, err);
}

bool device_collect(struct device *d, uint32_t fetch, void *to, uint64_t bytes, struct err *err)
{
    CHECK(fetch < DEVICE_FETCHES && bytes <= DEVICE_FETCH_BYTES);
    d->counters.waits++;
    d->counters.read_bytes += bytes;
    return d->queue->collect(d, fetch, to, bytes, err);
}

bool device_can_send(const struct device *from, const struct device *to)
{
    return from->queue && from->queue->send && to->queue && to->queue->send == from->queue->send;
}

bool device_send(struct device *d, const struct buffer *from, struct buffer *to, struct device_span span,
                 struct err *err)
{
    uint64_t least = from->bytes < to->bytes ? from->bytes : to->bytes;

    CHECK(device_can_send(d, to->device) && span.offset <= least && span.bytes <= least - span.offset);
    d->counters.sent_bytes += span.bytes;
    return d->queue->send(d, from, to, span, err);
}

bool device_can_bring(const struct device *d)
{
    return !d->outlines && (!d->queue || d->queue->bring);
}

bool device_bring(struct device *d, const struct device_piece *pieces, uint32_t n, struct err *err)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct device_piece *p = &pieces[i];
        CHECK(p->offset <= p->buffer->bytes && p->bytes <= p->buffer->bytes - p->offset);
        if (!d->queue)
            memcpy((unsigned char *)p->buffer->host + p->offset, p->host, p->bytes);
    }
    return !d->queue || d->queue->bring(d, pieces, n, err);
}

bool device_gather(struct device *d, const struct device_piece *pieces, uint32_t n, struct err *err)
{
    bool at_once = d->queue && d->queue->gather;

    for (uint32_t i = 0; i < n; i++) {
        const struct device_piece *p = &pieces[i];
        CHECK(p->offset <= p->buffer->bytes && p->bytes <= p->buffer->bytes - p->offset);
        if (!at_once && !buffer_read(p->buffer, p->offset, p->host, p->bytes, err))
            return false;
        d->counters.read_bytes += at_once ? p->bytes : 0;
    }
    return !at_once || d->queue->gather(d, pieces, n, err);
}

void device_close(struct device *d)
{
    if (d)
        d->ops->close(d);
}
