// quantize_fit.c - see quantize_fit.h. Sums run in four lanes, so that compilers can use vectors and the
// order is fixed.
#include "model_tools/quantize/quantize_fit.h"
#include <math.h>
#include <string.h>

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

static void round_to(float *q, const struct points *p, const float scale_base[2], const int range[2])
{
    float inverse = fabsf(scale_base[0]) > 1e-30f ? 1.0f / scale_base[0] : 0.0f, base = scale_base[1];
    float low = (float)range[0], high = (float)range[1];

    for (int i = 0; i < p->n; i++) {
        float v = (p->x[i] - base) * inverse;
        v = v < low ? low : v;
        v = v > high ? high : v;
        q[i] = nearest(v);
    }
}

static float error_of(const float *q, const struct points *p, const float scale_base[2])
{
    float sum[LANES] = { 0 };

    for (int i = 0; i < p->n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            float e = scale_base[0] * q[i + j] + scale_base[1] - p->x[i + j];
            sum[j] += p->w[i + j] * e * e;
        }
    return lanes_sum(sum);
}

float fit_round(float *q, const struct points *p, const float scale_base[2], const int range[2])
{
    round_to(q, p, scale_base, range);
    return error_of(q, p, scale_base);
}

struct sums {
    float w, x, q, xq, qq; // sums of w, w x, w q, w x q, w q q
};

static struct sums sums_of(const float *q, const struct points *p)
{
    float s[5][LANES] = { { 0 } };

    for (int i = 0; i < p->n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            float weight = p->w[i + j], wq = weight * q[i + j];
            s[0][j] += weight;
            s[1][j] += weight * p->x[i + j];
            s[2][j] += wq;
            s[3][j] += wq * p->x[i + j];
            s[4][j] += wq * q[i + j];
        }
    return (struct sums){ lanes_sum(s[0]), lanes_sum(s[1]), lanes_sum(s[2]), lanes_sum(s[3]),
                          lanes_sum(s[4]) };
}

// The line through the points (q, x): scale and base of least weighted error.
static void solve_line(const struct sums *s, bool base_negative, float scale_base[2])
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

// One line: rounds to it, solves for those integers, and keeps the result if its error is the least so far.
static bool try_affine(struct fit *best, const struct points *p, int q_max, bool base_negative, float line[2])
{
    const int range[2] = { 0, q_max };
    float q[FIT_MAX];

    round_to(q, p, line, range);
    struct sums s = sums_of(q, p);
    solve_line(&s, base_negative, line);
    float error = error_of(q, p, line);
    if (!(error < best->error) || !(line[0] > 0))
        return false;
    best->error = error;
    best->scale = line[0];
    best->base = line[1];
    memcpy(best->q, q, (size_t)p->n * sizeof *q);
    return true;
}

void fit_affine(struct fit *best, const struct points *p, int q_max, bool base_negative)
{
    enum { GUESSES = 20 };
    float low = p->x[0], high = p->x[0];

    for (int i = 1; i < p->n; i++) {
        low = p->x[i] < low ? p->x[i] : low;
        high = p->x[i] > high ? p->x[i] : high;
    }
    if (base_negative && low > 0)
        low = 0;
    *best = (struct fit){ .scale = 0, .base = low };
    if (!(high - low > 1e-30f))
        return;
    best->error = INFINITY;
    for (int guess = 0; guess < GUESSES;
         guess++) // the range as given, wider by up to a step, narrower by up to one
        try_affine(best, p, q_max, base_negative,
                   (float[2]){ (high - low) / ((float)q_max - 0.9f + 0.1f * (float)guess), low });
    for (int again = 0; again < 4; again++)
        if (!try_affine(best, p, q_max, base_negative, (float[2]){ best->scale, best->base }))
            break;
}

// Keeps q with this line, if it is better.
static void keep_better(struct fit *best, const struct points *p, const float *q, const float line[2])
{
    float error = error_of(q, p, line);

    if (!(error < best->error))
        return;
    best->error = error;
    best->scale = line[0];
    memcpy(best->q, q, (size_t)p->n * sizeof *q);
}

// A fit to be improved, and the element of the largest magnitude with its sign. false: all are 0, and so is
// the fit.
static bool begin_fit(struct fit *best, const struct points *p, float *largest)
{
    *largest = 0;
    for (int i = 0; i < p->n; i++)
        *largest = fabsf(p->x[i]) > fabsf(*largest) ? p->x[i] : *largest;
    *best = (struct fit){ 0 };
    if (!(fabsf(*largest) > 1e-30f))
        return false;
    best->error = INFINITY;
    return true;
}

static void try_signed(struct fit *best, const struct points *p, int q_size, float scale)
{
    const int range[2] = { -q_size, q_size - 1 };
    float q[FIT_MAX], line[2] = { scale, 0 };

    round_to(q, p, line, range);
    struct sums s = sums_of(q, p);
    line[0] = s.qq > 0 ? s.xq / s.qq : 0;
    keep_better(best, p, q, line);
}

void fit_signed(struct fit *best, const struct points *p, int q_size)
{
    enum { GUESSES = 21 };
    float largest;

    if (!begin_fit(best, p, &largest))
        return;
    for (int guess = 0; guess < GUESSES;
         guess++) // the largest element at -q_size, or up to a step beyond, or short of it
        try_signed(best, p, q_size, -largest / ((float)q_size - 1.0f + 0.1f * (float)guess));
    for (int again = 0; again < 2; again++)
        try_signed(best, p, q_size, best->scale);
}

// Equal weights and squares are worse, without importance (measured:
// bench/results/2026-11-22-quantize-weights.md).
void fit_weights(float *w, const float *x, const float *importance, int n)
{
    float sum = 0;

    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    float rms = sqrtf(sum / (float)n);
    for (int i = 0; i < n; i++)
        w[i] = (rms + fabsf(x[i])) * (importance ? importance[i] : 1) + 1e-30f;
}

int fit_level(const struct fit_levels *levels, float v)
{
    int i = 0;

    for (int half = 8; half > 0; half /= 2)
        if (v + v > levels->at[i + half - 1] + levels->at[i + half])
            i += half;
    return i;
}

float fit_round_to_levels(float *q, const struct points *p, float scale, const struct fit_levels *levels)
{
    float inverse = fabsf(scale) > 1e-30f ? 1.0f / scale : 0.0f;

    for (int i = 0; i < p->n; i++)
        q[i] = levels->at[fit_level(levels, p->x[i] * inverse)];
    return error_of(q, p, (const float[2]){ scale, 0 });
}

static void try_levels(struct fit *best, const struct points *p, float scale, const struct fit_levels *levels)
{
    float q[FIT_MAX];

    fit_round_to_levels(q, p, scale, levels);
    struct sums s = sums_of(q, p);
    float line[2] = { s.qq > 0 ? s.xq / s.qq : 0, 0 };
    keep_better(best, p, q, line);
}

void fit_to_levels(struct fit *best, const struct points *p, const struct fit_levels *levels)
{
    enum { GUESSES = 9 };
    float largest;

    if (!begin_fit(best, p, &largest))
        return;
    for (int guess = 0; guess < GUESSES;
         guess++) { // the largest element at either end, or a little beyond or short of it
        float stretch = 0.84f + 0.04f * (float)guess;
        try_levels(best, p, largest / (levels->at[0] * stretch), levels);
        try_levels(best, p, largest / (levels->at[15] * stretch), levels);
    }
    for (int again = 0; again < 2; again++)
        try_levels(best, p, best->scale, levels);
}
