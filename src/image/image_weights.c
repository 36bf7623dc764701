// image_weights.c - see image_weights.h. Every expression is in double and in Pillow's order, since a weight
// that is rounded otherwise changes bytes. The sine is the C library's: another one may differ in its last
// bit, which changes a weight of 2^22 only where it is within 1e-9 of a half.
#include <math.h>
#include "base/mem.h"
#include "image/image_weights.h"

static double bilinear(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

static double bicubic(double x) // Keys' kernel with a = -0.5
{
    const double a = -0.5;

    x = fabs(x);
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static double sinc(double x)
{
    if (x == 0)
        return 1;
    x *= M_PI;
    return sin(x) / x;
}

static double lanczos(double x)
{
    return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0;
}

static const struct {
    double (*at)(double x);
    double support;
} filters[] = {
    [IMAGE_BILINEAR] = { bilinear, 1 },
    [IMAGE_BICUBIC] = { bicubic, 2 },
    [IMAGE_LANCZOS] = { lanczos, 3 },
};

static int32_t rounded(double weight)
{
    double scaled = weight * (1 << IMAGE_WEIGHT_BITS);
    return (int32_t)(weight < 0 ? scaled - 0.5 : scaled + 0.5);
}

// A tap's digits lie from -128 to 127; taps behind the last one are 0.
static void split_digits(struct image_weights *w, uint32_t out)
{
    int8_t *to = w->digits + (size_t)out * w->n_fours * 12;

    for (uint32_t t = 0; t < w->n_fours * 4; t++) {
        int32_t tap = t < w->n_taps[out] ? w->taps[(size_t)out * w->stride + t] : 0;
        for (uint32_t d = 0; d < 3; d++) {
            int8_t digit = (int8_t)(uint8_t)tap;
            to[t / 4 * 12 + d * 4 + t % 4] = digit;
            tap = (tap - digit) / 256;
        }
    }
}

// values: room for stride. Both axes of a reduced picture use each input pixel at least once.
static void weigh(struct image_weights *w, uint32_t out, const struct image_axis *axis, double *values)
{
    double scale = (double)axis->n_in / w->n_out, stretch = scale < 1 ? 1 : scale, inverse = 1 / stretch;
    double support = filters[axis->filter].support * stretch, center = (out + 0.5) * scale, sum = 0;
    int from = (int)(center - support + 0.5), to = (int)(center + support + 0.5);

    from = from < 0 ? 0 : from;
    to = to > (int)axis->n_in ? (int)axis->n_in : to;
    for (int i = from; i < to; i++) {
        values[i - from] = filters[axis->filter].at((i - center + 0.5) * inverse);
        sum += values[i - from];
    }
    w->first[out] = (uint32_t)from;
    w->n_taps[out] = (uint32_t)(to - from);
    for (int i = 0; i < to - from; i++)
        w->taps[(size_t)out * w->stride + (size_t)i] = rounded(sum != 0 ? values[i] / sum : values[i]);
    split_digits(w, out);
}

struct weigh_job {
    struct image_weights *w;
    const struct image_axis *axis;
    double *values; // [n_threads, stride]
    uint32_t n_threads;
};

static void weigh_some(void *arg, unsigned thread)
{
    const struct weigh_job *job = arg;

    for (uint32_t i = thread; i < job->w->n_out; i += job->n_threads)
        weigh(job->w, i, job->axis, job->values + (size_t)thread * job->w->stride);
}

// Tens of sines for each output pixel: made by one of sixteen threads they took 1.9 of a cut's 5.2 ms
// (bench/results/2026-11-28-encoder.md).
bool image_weights_create(struct image_weights *w, const struct image_axis *axis, struct thread_pool *pool,
                          struct err *err)
{
    double scale = (double)axis->n_in / axis->n_out;
    uint32_t n_taps = (uint32_t)ceil(filters[axis->filter].support * (scale < 1 ? 1 : scale)) * 2 + 1;
    struct weigh_job job = { w, axis, NULL, pool ? thread_pool_size(pool) : 1 };

    *w = (struct image_weights){ .n_out = axis->n_out, .stride = n_taps, .n_fours = (n_taps + 3) / 4 };
    job.values = mem_alloc_array((size_t)job.n_threads * n_taps, sizeof *job.values);
    w->first = mem_alloc_array(w->n_out, sizeof *w->first);
    w->n_taps = mem_alloc_array(w->n_out, sizeof *w->n_taps);
    w->taps = mem_alloc_array((size_t)w->n_out * w->stride, sizeof *w->taps);
    w->digits = mem_alloc_array((size_t)w->n_out * w->n_fours, 12);
    bool ok = job.values && w->first && w->n_taps && w->taps && w->digits;
    if (ok && pool)
        thread_pool_run(pool, weigh_some, &job);
    else if (ok)
        weigh_some(&job, 0);
    mem_free(job.values);
    if (ok)
        return true;
    image_weights_free(w);
    return err_memory(err, "a picture's weights");
}

void image_weights_free(struct image_weights *w)
{
    mem_free(w->first);
    mem_free(w->n_taps);
    mem_free(w->taps);
    mem_free(w->digits);
    *w = (struct image_weights){ 0 };
}
