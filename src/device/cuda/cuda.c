// cuda.c - opening a GPU, its memory, and uploading weights; graph.c plays tapes.
//
// One stream carries everything in order: copies, repacking, graphs. Weights travel through a reused upload
// buffer and are repacked on the GPU, so that loading runs at the speed of the copy.
#include "device/cuda/cuda.h"
#include <string.h>
#include "base/mem.h"
#include "device/cuda/cuda_internal.h"
#include "device/cuda/nccl.h"

// The driver puts so little among the stream's commands, if it does not come from pinned memory: then it
// would be a copy by another engine, which waits for the kernels before it, and those behind it wait for it.
enum { SMALL_BYTES = 1024 };

bool cuda_check(const struct cuda *c, cu_result result, const char *what, struct err *err)
{
    if (result == 0)
        return true;
    return err_set(err, result == CU_OUT_OF_MEMORY ? ERR_MEMORY : ERR_DEVICE, "%s: %s failed: %s",
                   c->device.name, what, driver_error(c->cu, result));
}

cu_function cuda_function(struct cuda *c, const char *name)
{
    cu_function function = NULL;

    for (uint32_t i = 0; i < c->n_modules; i++)
        if (c->cu->module_function(&function, c->modules[i], name) == 0)
            return function;
    return NULL;
}

bool cuda_use(const struct cuda *c, struct err *err)
{
    return cuda_check(c, c->cu->context_set(c->context), "choosing the device", err);
}

// Until all that was played has been done.
static bool finish(struct cuda *c, const char *what, struct err *err)
{
    if (c->device.sleeps && (!cuda_check(c, c->cu->event_record(c->asleep, c->stream), what, err) ||
                             !cuda_check(c, c->cu->event_wait(c->asleep), what, err)))
        return false;
    return cuda_check(c, c->cu->stream_wait(c->stream), what, err);
}

static bool cuda_alloc(struct device *d, uint64_t bytes, struct buffer *b, struct err *err)
{
    struct cuda *c = (struct cuda *)d;
    // kernels may read a vector beyond the end
    uint64_t rounded = bytes < 256 ? 256 : (bytes + 255) / 256 * 256;
    cu_address at = 0;
    void *host = NULL;

    if (!cuda_use(c, err))
        return false;
    if (b->shared && rounded >= bytes && c->cu->host_alloc(&host, rounded, CU_HOST_PORTABLE) == 0) {
        memset(host, 0, rounded);
        *b = (struct buffer){ .device = d, .host = host, .bytes = bytes, .native = host, .shared = true };
        return true;
    }
    if (rounded < bytes || c->cu->alloc(&at, rounded) != 0)
        return err_set(err, ERR_MEMORY, "out of memory for %llu bytes on %s", (unsigned long long)bytes,
                       d->name);
    if (!cuda_check(c, c->cu->clear(at, 0, rounded, c->stream), "clearing memory", err)) {
        c->cu->give_back(at);
        return false;
    }
    *b = (struct buffer){ .device = d, .bytes = bytes, .native = (void *)(uintptr_t)at };
    return true;
}

static void cuda_release(struct device *d, struct buffer *b)
{
    struct cuda *c = (struct cuda *)d;

    if (!b->native || c->cu->context_set(c->context) != 0)
        return;
    if (b->host)
        c->cu->host_free(b->host);
    else
        c->cu->give_back((cu_address)(uintptr_t)b->native);
}

static bool cuda_write(struct device *d, struct buffer *b, uint64_t offset, const void *from, uint64_t bytes,
                       struct err *err)
{
    struct cuda *c = (struct cuda *)d;
    cu_address to = (cu_address)(uintptr_t)b->native + offset;
    unsigned char small[SMALL_BYTES];

    if (!cuda_use(c, err))
        return false;
    if (bytes <= sizeof small) {
        memcpy(small, from, bytes);
        return cuda_check(c, c->cu->write(to, small, bytes, c->stream), "a copy to the device", err);
    }
    if (bytes <= STAGING_BYTES)
        return cuda_staging_write(c, to, from, bytes, err);
    return cuda_check(c, c->cu->write(to, from, bytes, c->stream), "a copy to the device", err) &&
           cuda_check(c, c->cu->stream_wait(c->stream), "a copy to the device", err);
}

static bool cuda_read(struct device *d, const struct buffer *b, uint64_t offset, void *to, uint64_t bytes,
                      struct err *err)
{
    struct cuda *c = (struct cuda *)d;

    if (!cuda_use(c, err) ||
        (!b->host &&
         !cuda_check(c, c->cu->read(to, (cu_address)(uintptr_t)b->native + offset, bytes, c->stream),
                     "a copy to the host", err)) ||
        !finish(c, "a copy to the host", err))
        return false;
    if (b->host)
        memcpy(to, (const unsigned char *)b->host + offset, bytes);
    return true;
}

static bool cuda_fetch(struct device *d, const struct buffer *b, struct device_span span, uint32_t fetch,
                       struct err *err)
{
    struct cuda *c = (struct cuda *)d;
    unsigned char *to = c->staging + STAGING_BYTES + fetch * DEVICE_FETCH_BYTES;

    c->results[fetch] = b->host ? (const unsigned char *)b->host + span.offset : to;
    return cuda_use(c, err) &&
           (b->host ||
            cuda_check(c,
                       c->cu->read(to, (cu_address)(uintptr_t)b->native + span.offset, span.bytes, c->stream),
                       "a copy to the host", err)) &&
           cuda_check(c, c->cu->event_record(c->fetched[fetch], c->stream), "a copy to the host", err) &&
           (!d->sleeps ||
            cuda_check(c, c->cu->event_record(c->asleep, c->stream), "a copy to the host", err));
}

static bool cuda_collect(struct device *d, uint32_t fetch, void *to, uint64_t bytes, struct err *err)
{
    struct cuda *c = (struct cuda *)d;

    if (!cuda_use(c, err) || (d->sleeps && !cuda_check(c, c->cu->event_wait(c->asleep), "a step", err)) ||
        !cuda_check(c, c->cu->event_wait(c->fetched[fetch]), "a step", err))
        return false;
    memcpy(to, c->results[fetch], bytes);
    return true;
}

static void *cuda_pin(struct device *d, uint64_t bytes)
{
    struct cuda *c = (struct cuda *)d;
    void *at = NULL;

    return cuda_use(c, NULL) && c->cu->host_alloc(&at, bytes, CU_HOST_PORTABLE) == 0 ? at : NULL;
}

static void cuda_unpin(struct device *d, void *at)
{
    struct cuda *c = (struct cuda *)d;

    if (at && c->cu->context_set(c->context) == 0)
        c->cu->host_free(at);
}

bool cuda_pack_run(struct cuda *c, struct cuda_pack *pack, struct err *err)
{
    cu_function function = cuda_function(c, pack->kernel);
    void *params[] = { pack->params };
    struct cuda_shape *s = &pack->shape;

    if (!function)
        return err_set(err, ERR_UNSUPPORTED, "%s: this build has no kernel %s", c->device.name, pack->kernel);
    return cuda_check(c,
                      c->cu->launch(function, s->grid[0], s->grid[1], s->grid[2], s->block, 1, 1, s->shared,
                                    c->stream, params, NULL),
                      pack->kernel, err) &&
           cuda_check(c, c->cu->stream_wait(c->stream), pack->kernel, err);
}

// The file's bytes go to a buffer of their own, which the repacked matrix replaces.
static bool repack(struct cuda *c, const struct weight_source *source, struct weight *w, struct err *err)
{
    struct cuda_pack pack = { 0 };
    struct buffer packed = { 0 };

    c->table->pack(source, 0, 0, &pack);
    if (pack.bytes == 0)
        return true;
    if (!buffer_alloc(&c->device, pack.bytes, &packed, err))
        return false;
    c->table->pack(source, (uint64_t)(uintptr_t)w->buffer.native, (uint64_t)(uintptr_t)packed.native, &pack);
    bool ok = cuda_pack_run(c, &pack, err);
    buffer_release(&w->buffer);
    w->buffer = packed;
    w->layout = source->use == WEIGHT_ROW_SCALES ? LAYOUT_ROW_SCALES : LAYOUT_PLANES;
    w->bytes = pack.bytes;
    return ok;
}

static bool cuda_weight_take(struct device *d, const struct weight_source *source, struct weight *w,
                             struct err *err)
{
    struct cuda *c = (struct cuda *)d;

    *w = (struct weight){ .bytes = source->bytes,
                          .n_rows = source->n_rows,
                          .n_cols = source->n_cols,
                          .format = source->format,
                          .name = source->name };
    bool far = source->use == WEIGHT_FAR_ROWS && cuda_far_rows_pin(c, source, w);
    bool ok = far ? cuda_far_rows_fill(c, source, w, err)
                  : buffer_alloc(d, source->bytes, &w->buffer, err) &&
                        buffer_write(&w->buffer, 0, source->data, source->bytes, err) &&
                        repack(c, source, w, err);
    if (!ok)
        buffer_release(&w->buffer);
    return ok;
}

static bool cuda_supports(struct device *d, uint32_t op)
{
    const struct cuda_table *table = ((const struct cuda *)d)->table;
    uint32_t capability = ((const struct cuda *)d)->limits.capability;

    return op < table->n_ops && table->plans[op] &&
           (!table->capabilities[op] || table->capabilities[op] == capability);
}

// A stage's thread may not have called the driver before.
static bool cuda_seal(struct device *d, struct tape *t, struct err *err)
{
    return cuda_use((struct cuda *)d, err) && cuda_tape_seal(d, t, err);
}

static bool cuda_wait(struct device *d, struct err *err)
{
    struct cuda *c = (struct cuda *)d;

    d->counters.waits++;
    if (!cuda_use(c, err) || !finish(c, "a step", err))
        return false;
    c->staging_used = 0;
    return true;
}

static void cuda_info(struct device *d, struct device_info *info)
{
    struct cuda *c = (struct cuda *)d;
    char name[96] = "";
    size_t free_bytes = 0, total = 0;

    c->cu->device_name(name, sizeof name, c->ordinal);
    snprintf(info->name, sizeof info->name, "%s, %u multiprocessors", name, c->limits.n_sms);
    if (c->cu->context_set(c->context) == 0)
        c->cu->memory_info(&free_bytes, &total);
    info->memory_bytes = total;
    info->free_bytes = free_bytes;
}

static void cuda_close(struct device *d)
{
    struct cuda *c = (struct cuda *)d;

    if (c->context && c->cu->context_set(c->context) == 0) {
        vendor_close(c->vendor);
        cuda_beside_close(c);
        for (uint32_t i = 0; i < c->n_modules; i++)
            c->cu->module_unload(c->modules[i]);
        if (c->staging)
            c->cu->host_free(c->staging);
        for (int i = 0; i < DEVICE_FETCHES; i++)
            if (c->fetched[i])
                c->cu->event_destroy(c->fetched[i]);
        if (c->reached)
            c->cu->event_destroy(c->reached);
        if (c->asleep)
            c->cu->event_destroy(c->asleep);
        if (c->stream)
            c->cu->stream_destroy(c->stream);
    }
    if (c->retained)
        c->cu->primary_release(c->ordinal);
    pthread_mutex_destroy(&c->beside.lock);
    thread_pool_destroy(c->copiers);
    mem_free(c->modules);
    mem_free(c);
}

static int attribute(const struct cuda *c, int which)
{
    int value = 0;
    return c->cu->device_attribute(&value, which, c->ordinal) == 0 ? value : 0;
}

// Plans divide by these.
static bool read_limits(struct cuda *c, struct err *err)
{
    int n_sms = attribute(c, CU_ATTRIBUTE_SM_COUNT), shared = attribute(c, CU_ATTRIBUTE_SHARED_OPTIN),
        major = attribute(c, CU_ATTRIBUTE_MAJOR);

    if (n_sms <= 0 || shared <= STATIC_SHARED_BYTES || major <= 0)
        return err_set(
            err, ERR_DEVICE,
            "%s: the driver tells of %d multiprocessors with %d bytes of shared memory, capability "
            "%d; it cannot be used",
            c->device.name, n_sms, shared, major);
    c->limits = (struct cuda_limits){
        .n_sms = (uint32_t)n_sms,
        .shared_bytes = (uint32_t)shared - STATIC_SHARED_BYTES,
        .capability = (uint32_t)(major * 10 + attribute(c, CU_ATTRIBUTE_MINOR)),
    };
    return true;
}

static bool start(struct cuda *c, struct err *err)
{
    const struct driver *cu = c->cu;

    // refused when another library already uses the device; that is no problem
    cu->primary_flags(c->ordinal, CU_SCHEDULE_SPIN);
    if (!cuda_check(c, cu->primary_retain(&c->context, c->ordinal), "starting the device", err))
        return false;
    c->retained = true;
    void *staging = NULL;
    if (!cuda_use(c, err) ||
        !cuda_check(c, cu->stream_create(&c->stream, CU_STREAM_NON_BLOCKING), "a stream", err) ||
        !cuda_check(
            c,
            cu->host_alloc(&staging, STAGING_BYTES + DEVICE_FETCHES * DEVICE_FETCH_BYTES, CU_HOST_PORTABLE),
            "pinned memory", err))
        return false;
    c->staging = staging;
    for (int i = 0; i < DEVICE_FETCHES; i++)
        if (!cuda_check(c, cu->event_create(&c->fetched[i], CU_EVENT_NO_TIMING), "an event", err))
            return false;
    if (!cuda_check(c, cu->event_create(&c->reached, CU_EVENT_NO_TIMING), "an event", err) ||
        !cuda_check(c, cu->event_create(&c->asleep, CU_EVENT_NO_TIMING | CU_EVENT_BLOCKING_SYNC), "an event",
                    err))
        return false;
    if (!read_limits(c, err))
        return false;
    c->modules = mem_alloc_array(cuda_n_images, sizeof *c->modules);
    for (; c->n_modules < cuda_n_images; c->n_modules++) {
        const struct cuda_image *image = &cuda_images[c->n_modules];
        if (!cuda_check(c, cu->module_load(&c->modules[c->n_modules], image->data), image->name, err))
            return err_prefix(err, "compute capability %u", c->limits.capability);
    }
    return true;
}

uint32_t cuda_n_devices(struct err *err)
{
    const struct driver *cu;
    int n = 0;

    if (cuda_n_images == 0) {
        err_set(err, ERR_UNSUPPORTED, "this build holds no CUDA kernels: %s", cuda_images_missing);
        return 0;
    }
    cu = driver_load(err);
    if (!cu)
        return 0;
    if (cu->device_count(&n) != 0 || n <= 0) {
        err_set(err, ERR_UNSUPPORTED, "the NVIDIA driver finds no device");
        return 0;
    }
    return (uint32_t)n;
}

struct device *cuda_open(uint32_t ordinal, const struct cuda_table *table, struct err *err)
{
    static const struct device_ops ops = { cuda_close,      cuda_info,      cuda_alloc,       cuda_release,
                                           cuda_write,      cuda_read,      cuda_weight_take, cuda_supports,
                                           cuda_seal,       cuda_tape_drop, cuda_tape_play,   cuda_wait,
                                           cuda_tape_kernel };
    static const struct device_queue queue = { cuda_fetch,      cuda_collect, cuda_send,  cuda_connect,
                                               cuda_pin,        cuda_unpin,   cuda_bring, cuda_gather,
                                               cuda_tape_ready, nccl_open,    nccl_join,  nccl_meeting };
    uint32_t n = cuda_n_devices(err);

    if (n == 0)
        return NULL;
    if (ordinal >= n) {
        err_set(err, ERR_NOT_FOUND, "device cuda:%u; this machine has cuda:0 to cuda:%u", ordinal, n - 1);
        return NULL;
    }
    struct cuda *c = mem_alloc(sizeof *c);
    if (!c) {
        err_memory(err, "a device");
        return NULL;
    }
    pthread_mutex_init(&c->beside.lock, NULL);
    c->device.ops = &ops;
    c->device.queue = &queue;
    c->device.sampling = &cuda_sampling;
    snprintf(c->device.name, sizeof c->device.name, "cuda:%u", ordinal);
    c->cu = driver_load(err);
    c->table = table;
    c->device.fusions = table->fusions;
    c->device.max_head_dim = table->max_head_dim;
    c->device.product_cols = table->product_cols;
    if (cuda_check(c, c->cu->device_get(&c->ordinal, (int)ordinal), "finding the device", err) &&
        start(c, err)) {
        if (c->limits.capability >= 90 && cuda_function(c, table->row_scales))
            c->device.row_scales_cols = table->row_scales_cols;
        return &c->device;
    }
    cuda_close(&c->device);
    return NULL;
}
