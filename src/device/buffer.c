// buffer.c - device memory: counting and checks of range. See device.h.
#include "device/device.h"

static bool alloc_counted(struct device *d, uint64_t bytes, struct buffer *b, struct err *err)
{
    if (d->outlines) {
        b->device = d;
        b->bytes = bytes;
        b->native = BUFFER_OUTLINE;
        return true;
    }
    if (!d->ops->alloc(d, bytes, b, err))
        return false;
    d->counters.buffers++;
    return true;
}

bool buffer_alloc(struct device *d, uint64_t bytes, struct buffer *b, struct err *err)
{
    *b = (struct buffer){ 0 };
    return alloc_counted(d, bytes, b, err);
}

bool buffer_alloc_local(struct device *d, uint64_t bytes, struct buffer *b, struct err *err)
{
    *b = (struct buffer){ .local = true };
    return alloc_counted(d, bytes, b, err);
}

bool buffer_alloc_shared(struct device *d, uint64_t bytes, struct buffer *b, struct err *err)
{
    *b = (struct buffer){ .shared = true };
    return alloc_counted(d, bytes, b, err);
}

void buffer_release(struct buffer *b)
{
    if (b->device && !b->device->outlines)
        b->device->ops->release(b->device, b);
    *b = (struct buffer){ 0 };
}

bool buffer_write(struct buffer *b, uint64_t offset, const void *from, uint64_t bytes, struct err *err)
{
    CHECK(offset <= b->bytes && bytes <= b->bytes - offset);
    if (b->device->outlines)
        return true;
    b->device->counters.write_bytes += bytes;
    return b->device->ops->write(b->device, b, offset, from, bytes, err);
}

bool buffer_read(const struct buffer *b, uint64_t offset, void *to, uint64_t bytes, struct err *err)
{
    CHECK(!b->device->outlines && offset <= b->bytes && bytes <= b->bytes - offset);
    b->device->counters.read_bytes += bytes;
    return b->device->ops->read(b->device, b, offset, to, bytes, err);
}
