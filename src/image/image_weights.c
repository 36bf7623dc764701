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

// values: room for stride. Both axes of a reduced picture use each input pixel at least once.
static void weigh(struct image_weights *w, uint32_t out, uint32_t n_in, enum image_filter filter,
                  double *values)
{
    double scale = (double)n_in / w->n_out, stretch = scale < 1 ? 1 : scale, inverse = 1 / stretch;
    double support = filters[filter].support * stretch, center = (out + 0.5) * scale, sum = 0;
    int from = (int)(center - support + 0.5), to = (int)(center + support + 0.5);

    from = from < 0 ? 0 : from;
    to = to > (int)n_in ? (int)n_in : to;
    for (int i = from; i < to; i++) {
        values[i - from] = filters[filter].at((i - center + 0.5) * inverse);
        sum += values[i - from];
    }
    w->first[out] = (uint32_t)from;
    w->n_taps[out] = (uint32_t)(to - from);
    for (int i = 0; i < to - from; i++)
        w->taps[(size_t)out * w->stride + (size_t)i] = rounded(sum != 0 ? values[i] / sum : values[i]);
}

bool image_weights_create(struct image_weights *w, uint32_t n_in, uint32_t n_out, enum image_filter filter,
                          struct err *err)
{
    double scale = (double)n_in / n_out;
    uint32_t n_taps = (uint32_t)ceil(filters[filter].support * (scale < 1 ? 1 : scale)) * 2 + 1;
    double *values = mem_alloc_array(n_taps, sizeof *values);

    *w = (struct image_weights){ .n_out = n_out, .stride = n_taps };
    w->first = mem_alloc_array(n_out, sizeof *w->first);
    w->n_taps = mem_alloc_array(n_out, sizeof *w->n_taps);
    w->taps = mem_alloc_array((size_t)n_out * w->stride, sizeof *w->taps);
    bool ok = values && w->first && w->n_taps && w->taps;
    for (uint32_t i = 0; ok && i < n_out; i++)
        weigh(w, i, n_in, filter, values);
    mem_free(values);
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
    *w = (struct image_weights){ 0 };
}
