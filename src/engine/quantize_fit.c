// quantize_fit.c - see quantize_fit.h. Sums run in four lanes, so that compilers can use vectors and the order is fixed.
#include "engine/quantize_fit.h"
#include <math.h>

enum { LANES = 4 };

// Nearest whole number, ties to even, for |x| below 2^22; written so that it vectorises everywhere.
static inline float nearest(float x)
{
    return (x + 12582912.0f) - 12582912.0f;
}

static float lanes_sum(const float *lanes)
{
    return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

static void round_to(float *q, const float *x, int n, const float scale_base[2], const int range[2])
{
    float inverse = fabsf(scale_base[0]) > 1e-30f ? 1.0f / scale_base[0] : 0.0f, base = scale_base[1];
    float low = (float)range[0], high = (float)range[1];

    for (int i = 0; i < n; i++) {
        float v = (x[i] - base) * inverse;
        v = v < low ? low : v;
        v = v > high ? high : v;
        q[i] = nearest(v);
    }
}

static float error_of(const float *q, const float *x, const float *w, int n, const float scale_base[2])
{
    float sum[LANES] = { 0 };

    for (int i = 0; i < n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            float e = scale_base[0] * q[i + j] + scale_base[1] - x[i + j];
            sum[j] += w[i + j] * e * e;
        }
    return lanes_sum(sum);
}

float fit_round(float *q, const float *x, const float *w, int n, const float scale_base[2], const int range[2])
{
    round_to(q, x, n, scale_base, range);
    return error_of(q, x, w, n, scale_base);
}

struct sums {
    float w, x, q, xq, qq; // sums of w, w x, w q, w x q, w q q
};

static struct sums sums_of(const float *q, const float *x, const float *w, int n)
{
    float s[5][LANES] = { { 0 } };

    for (int i = 0; i < n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            float weight = w[i + j], wq = weight * q[i + j];
            s[0][j] += weight;
            s[1][j] += weight * x[i + j];
            s[2][j] += wq;
            s[3][j] += wq * x[i + j];
            s[4][j] += wq * q[i + j];
        }
    return (struct sums){ lanes_sum(s[0]), lanes_sum(s[1]), lanes_sum(s[2]), lanes_sum(s[3]), lanes_sum(s[4]) };
}

// The line through the points (q, x): scale and base of least weighted error.
static void solve_line(const struct sums *s, int base_negative, float scale_base[2])
{
    double det = (double)s->w * s->qq - (double)s->q * s->q;

    if (det <= 0)
        return;
    scale_base[0] = (float)(((double)s->w * s->xq - (double)s->x * s->q) / det);
    scale_base[1] = (float)(((double)s->qq * s->x - (double)s->q * s->xq) / det);
    if (base_negative && scale_base[1] > 0) {
        scale_base[0] = s->qq > 0 ? s->xq / s->qq : 0;
        scale_base[1] = 0;
    }
}

static int keep_better(struct fit *best, const float *q, const float scale_base[2], float error, int n)
{
    if (!(error < best->error) || !(scale_base[0] > 0))
        return 0;
    best->error = error;
    best->scale = scale_base[0];
    best->base = scale_base[1];
    for (int i = 0; i < n; i++)
        best->q[i] = q[i];
    return 1;
}

void fit_affine(struct fit *best, const float *x, const float *w, int n, int q_max, int base_negative)
{
    enum { GUESSES = 20 };
    float low = x[0], high = x[0], q[FIT_MAX];
    const int range[2] = { 0, q_max };

    for (int i = 1; i < n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    if (base_negative && low > 0)
        low = 0;
    *best = (struct fit){ .scale = 0, .base = low };
    if (!(high - low > 1e-30f))
        return;
    best->error = INFINITY;
    for (int guess = 0; guess < GUESSES; guess++) { // the range as given, wider by up to a step, narrower by up to one
        float line[2] = { (high - low) / ((float)q_max - 0.9f + 0.1f * (float)guess), low };
        round_to(q, x, n, line, range);
        struct sums s = sums_of(q, x, w, n);
        solve_line(&s, base_negative, line);
        keep_better(best, q, line, error_of(q, x, w, n, line), n);
    }
    for (int again = 0; again < 4; again++) {
        float line[2] = { best->scale, best->base };
        round_to(q, x, n, line, range);
        struct sums s = sums_of(q, x, w, n);
        solve_line(&s, base_negative, line);
        if (!keep_better(best, q, line, error_of(q, x, w, n, line), n))
            break;
    }
}

static void try_signed(struct fit *best, const float *x, const float *w, int n, const float first[2])
{
    int q_size = (int)first[1];
    const int range[2] = { -q_size, q_size - 1 };
    float q[FIT_MAX] = { 0 }, line[2] = { first[0], 0 };

    round_to(q, x, n, line, range);
    struct sums s = sums_of(q, x, w, n);
    line[0] = s.qq > 0 ? s.xq / s.qq : 0;
    float error = error_of(q, x, w, n, line);
    if (!(error < best->error))
        return;
    best->error = error;
    best->scale = line[0];
    for (int i = 0; i < n; i++)
        best->q[i] = q[i];
}

void fit_signed(struct fit *best, const float *x, const float *w, int n, int q_size)
{
    enum { GUESSES = 21 };
    float largest = 0;

    for (int i = 0; i < n; i++)
        largest = fabsf(x[i]) > fabsf(largest) ? x[i] : largest;
    *best = (struct fit){ 0 };
    if (!(fabsf(largest) > 1e-30f))
        return;
    best->error = INFINITY;
    for (int guess = 0; guess < GUESSES; guess++) // the largest element at -q_size, or up to a step beyond, or short of it
        try_signed(best, x, w, n, (const float[2]){ -largest / ((float)q_size - 1.0f + 0.1f * (float)guess), (float)q_size });
    for (int again = 0; again < 2; again++)
        try_signed(best, x, w, n, (const float[2]){ best->scale, (float)q_size });
}
