// quantize_encode_k.c - the encoders of blocks of 256.
//
// Each group is fitted alone first (quantize_fit.h). Then the integers that stand for the groups' scales, and
// minima, are chosen anew around those, with the block's halves fitted to all 256 elements at once.
#include <math.h>
#include "model_tools/quantize/quantize_encode.h"
#include "model_tools/quantize/quantize_fit.h"
#include "quant/iq4_xs.h"
#include "quant/q2_k.h"
#include "quant/q3_k.h"
#include "quant/q4_k.h"
#include "quant/q5_k.h"
#include "quant/q6_k.h"

enum { MOST_GROUPS = 16 };

static int clamp(int v, int low, int high)
{
    return v < low ? low : v > high ? high : v;
}

static float divide(float a, float b)
{
    return b != 0 ? a / b : 0;
}

// ---- with minima

// value = d * scale * q - dmin * min, scale and min of a group in 0..level_max.
struct affine_block {
    const float *x;
    float w[256], q[256];
    int q_max, level_max, n_groups;
    int scale[MOST_GROUPS], min[MOST_GROUPS];
    u16 d, dmin;
};

static struct points affine_group(const struct affine_block *b, int g)
{
    int size = 256 / b->n_groups;
    return (struct points){ b->x + size * g, b->w + size * g, size };
}

// Tries the neighbours of a group's scale and min and rounds its elements with the best pair. Returns the
// error.
static float choose_pair(struct affine_block *b, int g, float d, float dmin)
{
    const struct points p = affine_group(b, g);
    const int range[2] = { 0, b->q_max };
    int scale = b->scale[g], min = b->min[g];
    float q[FIT_MAX], best = INFINITY;

    for (int k = 0; k < 9; k++) {
        int s = scale + k / 3 - 1, m = min + k % 3 - 1;
        if (s < 0 || s > b->level_max || m < 0 || m > b->level_max)
            continue;
        float error = fit_round(q, &p, (const float[2]){ d * (float)s, -(dmin * (float)m) }, range);
        if (!(error < best))
            continue;
        best = error;
        b->scale[g] = s;
        b->min[g] = m;
        memcpy(b->q + p.n * g, q, (size_t)p.n * sizeof *q);
    }
    return best;
}

// Least squares for d and dmin over the whole block, the integers being what they are.
static void refit_pair(const struct affine_block *b, float *d, float *dmin)
{
    double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
    int size = 256 / b->n_groups;

    for (int i = 0; i < 256; i++) {
        double w = (double)b->w[i], s = (double)b->scale[i / size] * (double)b->q[i],
               m = -(double)b->min[i / size];
        aa += w * s * s;
        ab += w * s * m;
        bb += w * m * m;
        ax += w * s * (double)b->x[i];
        bx += w * m * (double)b->x[i];
    }
    double det = aa * bb - ab * ab;
    if (det > 1e-12 * aa * bb && bb > 0) {
        *d = (float)((ax * bb - bx * ab) / det);
        *dmin = (float)((aa * bx - ab * ax) / det);
    } else if (aa > 0) {
        *d = (float)(ax / aa);
    }
}

// Each group alone, and its scale and min as integers of a common step.
static void fit_groups(struct affine_block *b, float *d, float *dmin)
{
    float scale[MOST_GROUPS], min[MOST_GROUPS], levels = (float)b->level_max;
    struct fit fit;

    *d = *dmin = 0;
    for (int g = 0; g < b->n_groups; g++) {
        const struct points p = affine_group(b, g);
        fit_affine(&fit, &p, b->q_max, true);
        scale[g] = fit.scale;
        min[g] = -fit.base;
        *d = scale[g] / levels > *d ? scale[g] / levels : *d;
        *dmin = min[g] / levels > *dmin ? min[g] / levels : *dmin;
    }
    for (int g = 0; g < b->n_groups; g++) {
        b->scale[g] = clamp((int)(divide(scale[g], *d) + 0.5f), 0, b->level_max);
        b->min[g] = clamp((int)(divide(min[g], *dmin) + 0.5f), 0, b->level_max);
    }
}

static void fit_affine_block(struct affine_block *b, const float *x, const float *importance)
{
    float d, dmin, best = INFINITY;

    b->x = x;
    fit_weights(b->w, x, importance, 256);
    fit_groups(b, &d, &dmin);
    struct affine_block kept = *b;
    for (int round = 0; round < 3; round++) {
        float error = 0, d_half = quantize_half(d, &b->d), dmin_half = quantize_half(dmin, &b->dmin);
        for (int g = 0; g < b->n_groups; g++)
            error += choose_pair(b, g, d_half, dmin_half);
        if (!(error < best))
            break;
        best = error;
        kept = *b;
        refit_pair(b, &d, &dmin);
    }
    *b = kept;
}

// Bits 2j and 2j + 1 of byte l of a run of 32 are of element 32 j + l of its 128 elements.
static void pack_two_bits(u8 to[64], const float *q, int offset)
{
    memset(to, 0, 64);
    for (int i = 0; i < 256; i++)
        to[i / 128 * 32 + i % 32] |= (u8)((((int)q[i] + offset) & 3) << i % 128 / 32 * 2);
}

void quantize_encode_k_q2_k(const float *x, const float *importance, void *block)
{
    struct affine_block a = { .q_max = 3, .level_max = 15, .n_groups = 16 };
    struct q2_k *b = block;

    fit_affine_block(&a, x, importance);
    b->d = a.d;
    b->dmin = a.dmin;
    for (int g = 0; g < 16; g++)
        b->scales[g] = (u8)(a.scale[g] | a.min[g] << 4);
    pack_two_bits(b->q, a.q, 0);
}

static void pack_six_bit_pairs(u8 to[12], const int *scale, const int *min)
{
    for (int g = 0; g < 4; g++) {
        to[g] = (u8)(scale[g] | scale[g + 4] >> 4 << 6);
        to[g + 4] = (u8)(min[g] | min[g + 4] >> 4 << 6);
        to[g + 8] = (u8)((scale[g + 4] & 15) | (min[g + 4] & 15) << 4);
    }
}

// Low four bits: runs of 32 bytes for 64 elements, as in quant/q4_k.h.
static void pack_nibbles_64(u8 *to, const float *q)
{
    for (int i = 0; i < 128; i++) {
        const float *at = q + i / 32 * 64 + i % 32;
        to[i] = (u8)(((int)at[0] & 15) | ((int)at[32] & 15) << 4);
    }
}

void quantize_encode_k_q4_k(const float *x, const float *importance, void *block)
{
    struct affine_block a = { .q_max = 15, .level_max = 63, .n_groups = 8 };
    struct q4_k *b = block;

    fit_affine_block(&a, x, importance);
    b->d = a.d;
    b->dmin = a.dmin;
    pack_six_bit_pairs(b->scales, a.scale, a.min);
    pack_nibbles_64(b->q, a.q);
}

void quantize_encode_k_q5_k(const float *x, const float *importance, void *block)
{
    struct affine_block a = { .q_max = 31, .level_max = 63, .n_groups = 8 };
    struct q5_k *b = block;

    fit_affine_block(&a, x, importance);
    b->d = a.d;
    b->dmin = a.dmin;
    pack_six_bit_pairs(b->scales, a.scale, a.min);
    pack_nibbles_64(b->q, a.q);
    memset(b->high, 0, sizeof b->high);
    for (int i = 0; i < 256; i++)
        b->high[i % 32] |= (u8)(((int)a.q[i] >> 4 & 1) << i / 32);
}

// ---- with scales alone

// value = d * scale * q, scale of a group in -scale_size..scale_size - 1, q in -q_size..q_size - 1 or one of
// the levels.
struct scaled_block {
    const float *x;
    float w[256], q[256];
    int q_size, scale_size, n_groups;
    const struct fit_levels *levels; // NULL: integers
    int scale[MOST_GROUPS];
    u16 d;
};

static struct points scaled_group(const struct scaled_block *b, int g)
{
    int size = 256 / b->n_groups;
    return (struct points){ b->x + size * g, b->w + size * g, size };
}

static float round_group(const struct scaled_block *b, float *q, const struct points *p, float scale)
{
    const int range[2] = { -b->q_size, b->q_size - 1 };

    return b->levels ? fit_round_to_levels(q, p, scale, b->levels)
                     : fit_round(q, p, (const float[2]){ scale, 0 }, range);
}

static float choose_scale(struct scaled_block *b, int g, float d)
{
    const struct points p = scaled_group(b, g);
    int low = clamp(b->scale[g] - 1, -b->scale_size, b->scale_size - 1),
        high = clamp(b->scale[g] + 1, -b->scale_size, b->scale_size - 1);
    float q[FIT_MAX], best = INFINITY;

    for (int s = low; s <= high; s++) {
        float error = round_group(b, q, &p, d * (float)s);
        if (!(error < best))
            continue;
        best = error;
        b->scale[g] = s;
        memcpy(b->q + p.n * g, q, (size_t)p.n * sizeof *q);
    }
    return best;
}

static float refit_scale(const struct scaled_block *b, float d)
{
    double sx = 0, ss = 0;
    int size = 256 / b->n_groups;

    for (int i = 0; i < 256; i++) {
        double s = (double)b->scale[i / size] * (double)b->q[i], w = (double)b->w[i];
        sx += w * s * (double)b->x[i];
        ss += w * s * s;
    }
    return ss > 0 ? (float)(sx / ss) : d;
}

static float fit_scales(struct scaled_block *b)
{
    float scale[MOST_GROUPS], largest = 0;
    struct fit fit;

    for (int g = 0; g < b->n_groups; g++) {
        const struct points p = scaled_group(b, g);
        if (b->levels)
            fit_to_levels(&fit, &p, b->levels);
        else
            fit_signed(&fit, &p, b->q_size);
        scale[g] = fit.scale;
        largest = fabsf(scale[g]) > fabsf(largest) ? scale[g] : largest;
    }
    float d = largest / (float)-b->scale_size;
    for (int g = 0; g < b->n_groups; g++)
        b->scale[g] = clamp((int)lrintf(divide(scale[g], d)), -b->scale_size, b->scale_size - 1);
    return d;
}

static void fit_scaled_block(struct scaled_block *b, const float *x, const float *importance)
{
    float best = INFINITY;

    b->x = x;
    fit_weights(b->w, x, importance, 256);
    float d = fit_scales(b);
    struct scaled_block kept = *b;
    for (int round = 0; round < 3; round++) {
        float error = 0, d_half = quantize_half(d, &b->d);
        for (int g = 0; g < b->n_groups; g++)
            error += choose_scale(b, g, d_half);
        if (!(error < best))
            break;
        best = error;
        kept = *b;
        d = refit_scale(b, d);
    }
    *b = kept;
}

void quantize_encode_k_q3_k(const float *x, const float *importance, void *block)
{
    struct scaled_block a = { .q_size = 4, .scale_size = 32, .n_groups = 16 };
    struct q3_k *b = block;

    fit_scaled_block(&a, x, importance);
    *b = (struct q3_k){ .d = a.d };
    pack_two_bits(b->q, a.q, 4);
    for (int i = 0; i < 256; i++)
        b->high[i % 32] |= (u8)((a.q[i] >= 0) << i / 32);
    for (int g = 0; g < 16; g++) {
        int s = a.scale[g] + 32;
        b->scales[g % 8] |= (u8)((s & 15) << g / 8 * 4);
        b->scales[8 + g % 4] |= (u8)(s >> 4 << g / 4 * 2);
    }
}

void quantize_encode_k_q6_k(const float *x, const float *importance, void *block)
{
    struct scaled_block a = { .q_size = 32, .scale_size = 128, .n_groups = 16 };
    struct q6_k *b = block;

    fit_scaled_block(&a, x, importance);
    *b = (struct q6_k){ .d = a.d };
    for (int g = 0; g < 16; g++)
        b->scales[g] = (i8)a.scale[g];
    for (int i = 0; i < 256; i++) {
        int half = i / 128, j = i % 128 / 32, l = i % 32, q = (int)a.q[i] + 32;
        b->low[half * 64 + j % 2 * 32 + l] |= (u8)((q & 15) << j / 2 * 4);
        b->high[half * 32 + l] |= (u8)(q >> 4 << 2 * j);
    }
}

void quantize_encode_k_iq4_xs(const float *x, const float *importance, void *block)
{
    static const struct fit_levels levels = { IQ4_NL_LEVELS };
    struct scaled_block a = { .scale_size = 32, .n_groups = 8, .levels = &levels };
    struct iq4_xs *b = block;

    fit_scaled_block(&a, x, importance);
    *b = (struct iq4_xs){ .d = a.d };
    for (int g = 0; g < 8; g++) {
        int s = a.scale[g] + 32;
        b->scales_low[g / 2] |= (u8)((s & 15) << g % 2 * 4);
        b->scales_high |= (u16)(s >> 4 << g * 2);
    }
    for (int i = 0; i < 128; i++) {
        const float *at = a.q + i / 16 * 32 + i % 16;
        b->q[i] = (u8)(fit_level(&levels, at[0]) | fit_level(&levels, at[16]) << 4);
    }
}
