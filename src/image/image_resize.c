// image_resize.c - Pillow's Image.resize of RGB pictures: across into 8 bits, then down; see image.h.
//
// A pass that keeps its size is left out. A picture more than 100 times as tall as wide that becomes less
// tall goes down first, as in Pillow since 12.2: other bytes, and no wide intermediate picture. Both passes
// are one loop that adds lines: rows when going down; when going across, the columns of a strip of rows,
// which is transposed. Transposing a strip costs less than adding single pixels, which use vectors badly.
#include "device/cpu/cpu.h"
#include "image/image_pass.h"
#include "image/image_room.h"

enum { PIXEL = 3, TALL = 100, STRIP_ROWS = 32, STRIP_BYTES = STRIP_ROWS * PIXEL, RUN = 16 };

// One axis of one picture, in parts that the threads of a pool split evenly: output rows, or strips of rows.
struct resize_job {
    image_pass *pass;
    const struct image_weights *w;
    const struct picture *in, *out;
    uint32_t n_threads;
    uint8_t *strips; // [n_threads, in->width + out->width, STRIP_BYTES]; NULL: the pass goes down
};

// A thread's range of n parts.
static void share(const struct resize_job *job, uint32_t n, unsigned thread, uint32_t *from, uint32_t *to)
{
    *from = (uint32_t)((uint64_t)n * thread / job->n_threads);
    *to = (uint32_t)((uint64_t)n * (thread + 1) / job->n_threads);
}

static void run_down(void *arg, unsigned thread)
{
    const struct resize_job *job = arg;
    size_t row_bytes = (size_t)job->in->width * PIXEL;
    uint32_t from, to;

    share(job, job->out->height, thread, &from, &to);
    for (uint32_t y = from; y < to; y++)
        job->pass(job->w, y, job->in->rgb, row_bytes, job->out->rgb + y * row_bytes);
}

// Copies n pixels, 4 bytes at a time: the fourth byte is overwritten by the next pixel. The last pixel has no
// successor.
static inline void copy_pixels(uint8_t *to, size_t to_step, const uint8_t *from, size_t from_step, uint32_t n)
{
    for (; n > 1; n--, to += to_step, from += from_step)
        memcpy(to, from, PIXEL + 1);
    memcpy(to, from, PIXEL);
}

static inline void copy_exact(uint8_t *to, size_t to_step, const uint8_t *from, size_t from_step, uint32_t n)
{
    for (; n; n--, to += to_step, from += from_step)
        memcpy(to, from, PIXEL);
}

// Transposes rows of a picture to columns of a strip, or back. By runs of a row, so that written lines stay
// in the cache whatever the distance of the rows is.
static void turn(const struct picture *p, uint32_t top, uint32_t n_rows, uint8_t *strip, bool back)
{
    for (uint32_t left = 0; left < p->width; left += RUN) {
        uint32_t n = p->width - left < RUN ? p->width - left : RUN;
        for (uint32_t y = 0; y < n_rows; y++) {
            uint8_t *row = p->rgb + ((size_t)(top + y) * p->width + left) * PIXEL;
            uint8_t *column = strip + (size_t)left * STRIP_BYTES + y * PIXEL;
            if (back)
                copy_pixels(row, PIXEL, column, STRIP_BYTES, n);
            else if (y + 1 < n_rows)
                copy_pixels(column, STRIP_BYTES, row, PIXEL, n);
            else // the fourth byte is the next column's first, which is there already
                copy_exact(column, STRIP_BYTES, row, PIXEL, n);
        }
    }
}

static void run_across(void *arg, unsigned thread)
{
    const struct resize_job *job = arg;
    const struct picture *in = job->in, *out = job->out;
    uint8_t *turned = job->strips + (size_t)thread * (in->width + out->width) * STRIP_BYTES;
    uint8_t *sums = turned + (size_t)in->width * STRIP_BYTES;
    uint32_t from, to;

    share(job, (in->height + STRIP_ROWS - 1) / STRIP_ROWS, thread, &from, &to);
    for (uint32_t top = from * STRIP_ROWS; top < to * STRIP_ROWS && top < in->height; top += STRIP_ROWS) {
        uint32_t n_rows = in->height - top < STRIP_ROWS ? in->height - top : STRIP_ROWS;
        turn(in, top, n_rows, turned, false);
        for (uint32_t x = 0; x < out->width; x++)
            job->pass(job->w, x, turned, STRIP_BYTES, sums + (size_t)x * STRIP_BYTES);
        turn(out, top, n_rows, sums, true);
    }
}

static bool run_job(struct resize_job *job, bool across, const struct image_work *work, struct err *err)
{
    void (*run)(void *arg, unsigned thread) = across ? run_across : run_down;
    size_t strip = (size_t)(job->in->width + job->out->width) * STRIP_BYTES;

    job->n_threads = work->pool ? thread_pool_size(work->pool) : 1;
    if (across && !(job->strips = image_room_take(work->room, job->n_threads, strip)))
        return err_memory(err, "a picture's strips");
    if (work->pool)
        thread_pool_run(work->pool, run, job);
    else
        run(job, 0);
    image_room_give(work->room, job->strips);
    return true;
}

// One axis; the other axis keeps the size of in.
static bool resize_axis(const struct picture *out, const struct picture *in, enum image_filter filter,
                        const struct image_work *work, struct err *err)
{
    bool across = out->width != in->width;
    const struct image_axis axis = { across ? in->width : in->height, across ? out->width : out->height,
                                     filter };
    struct image_weights w;

    if (!image_weights_create(&w, &axis, work->pool, err))
        return false;
    struct resize_job job = {
        .pass = image_pass_choose(work->plain ? 0 : cpu_features()), .w = &w, .in = in, .out = out
    };
    bool ok = run_job(&job, across, work, err);
    image_weights_free(&w);
    return ok;
}

static bool resize_both(const struct picture *out, const struct picture *in, enum image_filter filter,
                        const struct image_work *work, struct err *err)
{
    bool down_first = (uint64_t)in->width * TALL < in->height && out->height < in->height;
    struct picture between = { .width = down_first ? in->width : out->width,
                               .height = down_first ? out->height : in->height };

    if (!picture_bounds(between.width, between.height, err))
        return false;
    between.rgb = image_room_take(work->room, (size_t)between.width * between.height, PIXEL);
    bool ok = (between.rgb || err_memory(err, "a picture")) && resize_axis(&between, in, filter, work, err) &&
              resize_axis(out, &between, filter, work, err);
    image_room_give(work->room, between.rgb);
    return ok;
}

bool image_resize_to(uint8_t *rgb, const struct picture *in, struct image_size size,
                     const struct image_work *work, struct err *err)
{
    bool across = size.width != in->width, down = size.height != in->height;
    const struct picture out = { rgb, size.width, size.height };

    if (across || down)
        return (across && down ? resize_both : resize_axis)(&out, in, size.filter, work, err);
    memcpy(rgb, in->rgb, (size_t)in->width * in->height * PIXEL);
    return true;
}

bool image_resize(struct picture *out, const struct picture *in, struct image_size size,
                  const struct image_work *work, struct err *err)
{
    if (!picture_create(out, size.width, size.height, err))
        return false;
    if (image_resize_to(out->rgb, in, size, work, err))
        return true;
    picture_free(out);
    return false;
}
