// metal_memory.c - buffers: shared with the host, private to the GPU, or laid over a file's mapping.
//
// Writes never wait, and take effect in order with plays. A shared buffer that no command buffer in flight
// can use is written at once. Any other write lies in staging memory until the next command buffer copies it.
// Reads wait.
#include <string.h>
#include <unistd.h>
#include "base/mem.h"
#include "device/metal/metal_internal.h"

enum { LEAST_BUCKET = 12, PADDING = 256, WEIGHT_ALIGNMENT = 16 };

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

static objc_id new_handle(struct metal *m, uint64_t bytes, ns_uint options, struct err *err)
{
    objc_id handle = bytes <= mtl_max_buffer(m->gpu) ? mtl_buffer(m->gpu, bytes, options) : NULL;

    if (!handle)
        err_set(err, ERR_MEMORY, "out of memory for %llu bytes on %s; a buffer holds at most %llu",
                (unsigned long long)bytes, m->device.name, (unsigned long long)mtl_max_buffer(m->gpu));
    return handle;
}

static void make_resident(struct metal *m, objc_id handle, bool on)
{
    if (!m->residency)
        return;
    if (on)
        mtl_residency_add(m->residency, handle);
    else
        mtl_residency_remove(m->residency, handle);
    mtl_commit(m->residency);
}

static struct metal_buffer *adopt(struct metal *m, objc_id handle, struct err *err)
{
    struct metal_buffer *b = mem_alloc(sizeof *b);

    if (!b) {
        mtl_release(handle);
        err_memory(err, "a buffer");
        return NULL;
    }
    b->handle = handle;
    make_resident(m, handle, true);
    return b;
}

// Serial of the command buffer that takes the next copies.
static uint64_t next_serial(const struct metal *m)
{
    return m->committed + 1;
}

bool metal_alloc(struct device *d, uint64_t bytes, struct buffer *b, struct err *err)
{
    struct metal *m = (struct metal *)d;
    uint64_t rounded = bytes ? round_up(bytes, PADDING) : PADDING; // kernels may read a vector beyond the end
    bool local = b->local;
    objc_id handle = rounded < bytes
                         ? NULL
                         : new_handle(m, rounded, local ? MTL_STORAGE_PRIVATE : MTL_STORAGE_SHARED, err);

    if (!handle)
        return rounded < bytes
                   ? err_set(err, ERR_MEMORY, "%llu bytes are too many", (unsigned long long)bytes)
                   : false;
    struct metal_buffer *native = adopt(m, handle, err);
    if (!native)
        return false;
    *b = (struct buffer){ .device = d, .bytes = bytes, .native = native, .local = local };
    if (local) {
        bool ok = metal_add_copy(m, (struct metal_copy){ .to = handle, .bytes = rounded }, err);
        native->used = next_serial(m);
        if (!ok)
            metal_release(d, b);
        return ok;
    }
    b->host = mtl_contents(handle);
    memset(b->host, 0, rounded);
    return true;
}

void metal_release(struct device *d, struct buffer *b)
{
    struct metal *m = (struct metal *)d;
    struct metal_buffer *native = b->native;
    void *pool = objc.objc_autoreleasePoolPush();

    metal_flush(m, NULL); // a copy to the buffer may be pending
    metal_sync(m, m->committed, NULL);
    make_resident(m, native->handle, false);
    mtl_release(native->handle);
    mem_free(native);
    objc.objc_autoreleasePoolPop(pool);
}

// Staging memory of at least this many bytes that no command buffer uses.
static struct metal_staging *pool_take(struct metal *m, uint64_t bytes, struct err *err)
{
    uint32_t bucket = LEAST_BUCKET;
    uint64_t completed = metal_completed(m);

    while (bucket < METAL_BUCKETS && (uint64_t)1 << bucket < bytes)
        bucket++;
    CHECK(bucket < METAL_BUCKETS);
    for (struct metal_staging *s = m->pool[bucket]; s; s = s->next)
        if (s->busy_until <= completed)
            return s;
    struct metal_staging *s = mem_alloc(sizeof *s);
    objc_id handle = s ? new_handle(m, (uint64_t)1 << bucket, MTL_STORAGE_SHARED, err) : NULL;
    if (!handle) {
        mem_free(s);
        return s ? NULL : (err_memory(err, "staging memory"), NULL);
    }
    make_resident(m, handle, true);
    m->device.counters.buffers++;
    *s = (struct metal_staging){ handle, mtl_contents(handle), 0, m->pool[bucket] };
    return m->pool[bucket] = s;
}

bool metal_pool_open(struct metal *m, struct err *err)
{
    m->fetched.handle = new_handle(m, DEVICE_FETCHES * DEVICE_FETCH_BYTES, MTL_STORAGE_SHARED, err);
    if (!m->fetched.handle)
        return false;
    m->fetched.at = mtl_contents(m->fetched.handle);
    make_resident(m, m->fetched.handle, true);
    return true;
}

void metal_pool_free(struct metal *m)
{
    if (m->fetched.handle) {
        make_resident(m, m->fetched.handle, false);
        mtl_release(m->fetched.handle);
    }
    for (uint32_t i = 0; i < METAL_BUCKETS; i++)
        while (m->pool[i]) {
            struct metal_staging *s = m->pool[i];
            m->pool[i] = s->next;
            make_resident(m, s->handle, false);
            mtl_release(s->handle);
            mem_free(s);
        }
}

static bool stage_write(struct metal *m, struct metal_buffer *native, struct metal_copy copy,
                        const void *from, struct err *err)
{
    struct metal_staging *s = pool_take(m, copy.bytes, err);

    if (!s)
        return false;
    memcpy(s->at, from, copy.bytes);
    s->busy_until = native->used = next_serial(m);
    copy.from = s->handle;
    return metal_add_copy(m, copy, err);
}

// The blit engine copies words.
static bool whole_words(const struct metal *m, uint64_t offset, uint64_t bytes, struct err *err)
{
    return (offset % 4 == 0 && bytes % 4 == 0) ||
           err_set(err, ERR_INPUT, "%s: a copy of %llu bytes at %llu; want multiples of 4", m->device.name,
                   (unsigned long long)bytes, (unsigned long long)offset);
}

bool metal_write(struct device *d, struct buffer *b, uint64_t offset, const void *from, uint64_t bytes,
                 struct err *err)
{
    struct metal *m = (struct metal *)d;
    struct metal_buffer *native = b->native;
    uint64_t busy_until = native->is_step || native->used > metal_last(m) ? native->used : metal_last(m);

    if (bytes == 0)
        return true;
    if (b->host && busy_until <= metal_completed(m)) {
        memcpy((unsigned char *)b->host + offset, from, bytes);
        return true;
    }
    void *pool = objc.objc_autoreleasePoolPush();
    bool ok =
        whole_words(m, offset, bytes, err) &&
        stage_write(m, native, (struct metal_copy){ NULL, native->handle, 0, native->offset + offset, bytes },
                    from, err);
    objc.objc_autoreleasePoolPop(pool);
    return ok;
}

// Waits for all work so far.
static bool settle(struct metal *m, struct err *err)
{
    if (!metal_flush(m, err))
        return false;
    m->device.counters.waits += metal_completed(m) < m->committed;
    return metal_sync(m, m->committed, err);
}

static bool read_private(struct metal *m, const struct metal_buffer *native, struct metal_copy copy, void *to,
                         struct err *err)
{
    struct metal_staging *s =
        whole_words(m, copy.from_at, copy.bytes, err) ? pool_take(m, copy.bytes, err) : NULL;

    if (!s)
        return false;
    copy.from = native->handle;
    copy.to = s->handle;
    s->busy_until = next_serial(m);
    if (!metal_add_copy(m, copy, err) || !settle(m, err))
        return false;
    memcpy(to, s->at, copy.bytes);
    return true;
}

bool metal_read(struct device *d, const struct buffer *b, uint64_t offset, void *to, uint64_t bytes,
                struct err *err)
{
    struct metal *m = (struct metal *)d;
    const struct metal_buffer *native = b->native;
    void *pool = objc.objc_autoreleasePoolPush();
    bool ok = true;

    if (bytes > 0 && !b->host)
        ok = read_private(m, native,
                          (struct metal_copy){ .from_at = native->offset + offset, .bytes = bytes }, to, err);
    else if (bytes > 0 && (ok = settle(m, err)))
        memcpy(to, (const unsigned char *)b->host + offset, bytes);
    objc.objc_autoreleasePoolPop(pool);
    return ok;
}

// The copy goes into the play's last command buffer.
bool metal_fetch(struct device *d, const struct buffer *b, struct device_span span, uint32_t fetch,
                 struct err *err)
{
    struct metal *m = (struct metal *)d;
    const struct metal_buffer *native = b->native;
    struct metal_copy copy = { native->handle, m->fetched.handle, native->offset + span.offset,
                               fetch * DEVICE_FETCH_BYTES, span.bytes };
    void *pool = objc.objc_autoreleasePoolPush();
    bool ok = whole_words(m, span.offset, span.bytes, err) &&
              (span.bytes == 0 || metal_add_copy(m, copy, err)) && metal_flush(m, err);

    m->fetches[fetch] = m->committed;
    objc.objc_autoreleasePoolPop(pool);
    return ok;
}

bool metal_collect(struct device *d, uint32_t fetch, void *to, uint64_t bytes, struct err *err)
{
    struct metal *m = (struct metal *)d;

    if (!metal_sync(m, m->fetches[fetch], err))
        return false;
    memcpy(to, m->fetched.at + fetch * DEVICE_FETCH_BYTES, bytes);
    return true;
}

// A buffer over the pages of the mapping that hold the weight; NULL where the system refuses.
static objc_id over_mapping(struct metal *m, const struct weight_source *source, uint64_t *offset)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)source->data, base = at / page * page;
    uint64_t bytes = round_up(at - base + source->bytes, page);

    *offset = at - base;
    if (at % WEIGHT_ALIGNMENT != 0 || bytes > mtl_max_buffer(m->gpu))
        return NULL;
    return mtl_buffer_over(m->gpu, (void *)base, bytes, MTL_STORAGE_SHARED);
}

static bool copy_weight(struct device *d, const struct weight_source *source, struct buffer *b,
                        struct err *err)
{
    if (!metal_alloc(d, source->bytes, b, err))
        return false;
    memcpy(b->host, source->data, source->bytes);
    return true;
}

bool metal_weight_take(struct device *d, const struct weight_source *source, struct weight *w,
                       struct err *err)
{
    struct metal *m = (struct metal *)d;
    void *pool = objc.objc_autoreleasePoolPush();
    uint64_t offset = 0;
    objc_id handle = over_mapping(m, source, &offset);
    struct metal_buffer *native = handle ? adopt(m, handle, err) : NULL;
    bool ok = native || (!handle && copy_weight(d, source, &w->buffer, err));

    if (native) {
        native->offset = offset;
        w->buffer = (struct buffer){
            .device = d, .host = (void *)source->data, .bytes = source->bytes, .native = native
        };
    }
    w->bytes = source->bytes;
    w->n_rows = source->n_rows;
    w->n_cols = source->n_cols;
    w->format = source->format;
    w->name = source->name;
    d->counters.buffers += ok;
    objc.objc_autoreleasePoolPop(pool);
    return ok;
}
