// metal.c - opening an Apple GPU; see metal.h. Memory is metal_memory.c, command buffers submission.c, tapes
// metal_play.c.
#include "device/metal/metal.h"
#include <string.h>
#include <unistd.h>
#include "base/mem.h"
#include "device/metal/metal_internal.h"

static bool metal_supports(struct device *d, uint32_t op)
{
    const struct metal *m = (const struct metal *)d;
    return op < m->table->n_ops && m->table->plans[op];
}

static bool metal_wait(struct device *d, struct err *err)
{
    struct metal *m = (struct metal *)d;
    void *pool = objc.objc_autoreleasePoolPush();

    d->counters.waits++;
    bool ok = metal_flush(m, err) && metal_sync(m, m->committed, err);
    objc.objc_autoreleasePoolPop(pool);
    return ok;
}

static void metal_info(struct device *d, struct device_info *info)
{
    struct metal *m = (struct metal *)d;
    void *pool = objc.objc_autoreleasePoolPush();
    uint64_t used = mtl_allocated(m->gpu);

    snprintf(info->name, sizeof info->name, "%.64s; emulator-tested, not yet run on Apple hardware",
             mtl_utf8(mtl_name(m->gpu)));
    info->memory_bytes = mtl_working_set(m->gpu);
    info->free_bytes = info->memory_bytes > used ? info->memory_bytes - used : 0;
    objc.objc_autoreleasePoolPop(pool);
}

bool metal_more_memory(struct device *d, char *text, size_t size)
{
    const double gib = 1 << 30;
    uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE),
             kept = machine / 8;
    struct device_info info = { 0 };

    d->ops->info(d, &info);
    if (machine - kept <= info.memory_bytes)
        return false;
    snprintf(
        text, size,
        "the system lets the GPU have %.1f of %.1f GiB; \"sudo sysctl iogpu.wired_limit_mb=%llu\" gives it "
        "%.1f until it restarts",
        (double)info.memory_bytes / gib, (double)machine / gib, (unsigned long long)(machine - kept) >> 20,
        (double)(machine - kept) / gib);
    return true;
}

static void metal_close(struct device *d)
{
    struct metal *m = (struct metal *)d;
    void *pool = objc.objc_autoreleasePoolPush();

    metal_sync(m, m->committed, NULL);
    metal_pool_free(m);
    if (m->nothing.handle)
        mtl_release(m->nothing.handle);
    metal_pipelines_close(m);
    objc_id objects[] = { m->residency, m->queue, m->gpu };
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++)
        if (objects[i])
            mtl_release(objects[i]);
    objc.objc_autoreleasePoolPop(pool);
    pthread_cond_destroy(&m->progress);
    pthread_mutex_destroy(&m->lock);
    mem_free(m->copies);
    mem_free(m);
}

uint32_t metal_n_devices(struct err *err)
{
    if (!objc_load(err))
        return 0;
    objc_id all = objc.MTLCopyAllDevices();
    ns_uint n = all ? mtl_count(all) : 0;
    if (all)
        mtl_release(all);
    if (n == 0)
        err_set(err, ERR_UNSUPPORTED, "Metal finds no GPU");
    return (uint32_t)n;
}

// The caller releases it. Ordinal 0 is the system's default GPU.
static objc_id choose_gpu(uint32_t ordinal, struct err *err)
{
    uint32_t n = metal_n_devices(err);
    objc_id gpu = NULL;

    if (n > 0 && ordinal >= n) {
        err_set(err, ERR_NOT_FOUND, "device metal:%u; this machine has metal:0 to metal:%u", ordinal, n - 1);
    } else if (n > 0 && ordinal == 0) {
        gpu = objc.MTLCreateSystemDefaultDevice();
        if (!gpu)
            err_set(err, ERR_DEVICE, "Metal gives no device");
    } else if (n > 0) {
        objc_id all = objc.MTLCopyAllDevices();
        gpu = mtl_retain(mtl_at(all, ordinal));
        mtl_release(all);
    }
    return gpu;
}

static bool check_gpu(struct metal *m, struct err *err)
{
    if (!mtl_supports_family(m->gpu, MTL_FAMILY_APPLE7) || !mtl_supports_family(m->gpu, MTL_FAMILY_METAL3))
        return err_set(err, ERR_UNSUPPORTED, "%s: want a GPU of the family Apple7 (M1) or later with Metal 3",
                       mtl_utf8(mtl_name(m->gpu)));
    m->limits.shared_bytes = (uint32_t)mtl_max_shared(m->gpu);
    return true;
}

// With a residency set (macOS 15), buffers are not made resident again for every command buffer.
static void open_residency(struct metal *m)
{
    objc_id error = NULL;

    if (!mtl_responds(m->gpu, objc.selectors.residency_set))
        return;
    objc_id descriptor = objc_new("MTLResidencySetDescriptor");
    m->residency = mtl_residency_set(m->gpu, descriptor, &error);
    mtl_release(descriptor);
    if (!m->residency)
        return;
    mtl_residency_request(m->residency);
    mtl_queue_residency(m->queue, m->residency);
}

static bool start(struct metal *m, struct err *err)
{
    m->gpu = choose_gpu(m->options.ordinal, err);
    if (!m->gpu || !check_gpu(m, err))
        return false;
    m->queue = mtl_queue(m->gpu);
    m->nothing.handle = mtl_buffer(m->gpu, 256, MTL_STORAGE_SHARED);
    if (!m->queue || !m->nothing.handle)
        return err_set(err, ERR_DEVICE, "%s gives no command queue", mtl_utf8(mtl_name(m->gpu)));
    memset(mtl_contents(m->nothing.handle), 0, 256);
    open_residency(m);
    return metal_pool_open(m, err) && metal_pipelines_open(m, err);
}

struct device *metal_open(const struct metal_options *options, struct err *err)
{
    static const struct device_ops ops = { metal_close,      metal_info, metal_alloc,       metal_release,
                                           metal_write,      metal_read, metal_weight_take, metal_supports,
                                           metal_seal,       metal_drop, metal_play,        metal_wait,
                                           metal_tape_kernel };
    static const struct device_queue queue = { .fetch = metal_fetch, .collect = metal_collect };
    struct metal *m;

    if (!objc_load(err))
        return NULL;
    m = mem_alloc(sizeof *m);
    if (!m) {
        err_memory(err, "a device");
        return NULL;
    }
    *m = (struct metal){ .device = { .ops = &ops,
                                     .queue = &queue,
                                     .max_head_dim = options->table->max_head_dim,
                                     .product_cols = options->table->product_cols,
                                     .fusions = options->table->fusions },
                         .table = options->table,
                         .options = *options };
    m->options.archive = NULL;
    snprintf(m->archive_path, sizeof m->archive_path, "%s", options->archive ? options->archive : "");
    snprintf(m->device.name, sizeof m->device.name, "metal:%u", options->ordinal);
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->progress, NULL);
    void *pool = objc.objc_autoreleasePoolPush();
    bool ok = start(m, err);
    objc.objc_autoreleasePoolPop(pool);
    if (ok)
        return &m->device;
    metal_close(&m->device);
    return NULL;
}
