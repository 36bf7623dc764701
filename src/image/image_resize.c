// image_resize.c - Pillow's Image.resize of RGB pictures: across into 8 bits, then down; see image.h.
//
// A pass whose size stays is left out. A picture more than 100 times as tall as wide that is made less tall goes down first, as Pillow
// does since 12.2: other bytes, and a tall picture needs no wide one in between.
#include "base/mem.h"
#include "device/cpu/cpu.h"
#include "image/image_pass.h"

enum { PIXEL = 3, TALL = 100 };

// One pass over whole rows, which the threads of a pool share in equal parts.
struct pass_job {
    const struct image_pass *pass;
    const struct image_weights *w;
    const struct picture *in, *out;
    uint32_t n_threads;
    size_t wide_bytes;
    uint8_t *wide; // [n_threads, wide_bytes]; NULL: the pass goes down
};

static void run_rows(void *arg, unsigned thread)
{
    const struct pass_job *job = arg;
    const struct picture *in = job->in, *out = job->out;
    uint32_t from = (uint32_t)((uint64_t)out->height * thread / job->n_threads);
    uint32_t to = (uint32_t)((uint64_t)out->height * (thread + 1) / job->n_threads);

    for (uint32_t y = from; y < to; y++) {
        uint8_t *row = out->rgb + (size_t)y * out->width * PIXEL;
        if (job->wide)
            job->pass->across(job->w, in->rgb + (size_t)y * in->width * PIXEL, in->width, row,
                              job->wide + thread * job->wide_bytes);
        else
            job->pass->down(job->w, y, in->rgb, (size_t)in->width * PIXEL, row);
    }
}

// Runs job from in to a new picture out, by a pool or alone.
static bool run_pass(struct pass_job *job, struct thread_pool *pool, struct err *err)
{
    const struct picture *in = job->in, *out = job->out;
    bool across = out->width != in->width;

    job->n_threads = pool ? thread_pool_size(pool) : 1;
    job->wide_bytes = 4 * ((size_t)in->width + 1);
    if (across && !(job->wide = mem_alloc_array(job->n_threads, job->wide_bytes)))
        return err_memory(err, "a picture's row");
    if (pool)
        thread_pool_run(pool, run_rows, job);
    else
        run_rows(job, 0);
    mem_free(job->wide);
    return true;
}

// One axis; the other one's size is that of in.
static bool resize_axis(struct picture *out, const struct picture *in, struct image_size size, const struct image_work *work,
                        struct err *err)
{
    bool across = size.width != in->width;
    struct image_weights w;

    if (!picture_create(out, size.width, size.height, err))
        return false;
    bool ok = image_weights_create(&w, across ? in->width : in->height, across ? size.width : size.height, size.filter, err);
    if (ok) {
        struct pass_job job = { .pass = image_pass_choose(work->plain ? 0 : cpu_features()), .w = &w, .in = in, .out = out };
        ok = run_pass(&job, work->pool, err);
        image_weights_free(&w);
    }
    if (!ok)
        picture_free(out);
    return ok;
}

static bool copy(struct picture *out, const struct picture *in, struct err *err)
{
    if (!picture_create(out, in->width, in->height, err))
        return false;
    memcpy(out->rgb, in->rgb, (size_t)in->width * in->height * PIXEL);
    return true;
}

bool image_resize(struct picture *out, const struct picture *in, struct image_size size, const struct image_work *work,
                  struct err *err)
{
    bool across = size.width != in->width, down = size.height != in->height;
    bool down_first = (uint64_t)in->width * TALL < in->height && size.height < in->height;
    struct image_size first = size;
    struct picture between;

    if (!across || !down)
        return across || down ? resize_axis(out, in, size, work, err) : copy(out, in, err);
    if (down_first)
        first.width = in->width;
    else
        first.height = in->height;
    if (!resize_axis(&between, in, first, work, err))
        return false;
    bool ok = resize_axis(out, &between, size, work, err);
    picture_free(&between);
    return ok;
}
