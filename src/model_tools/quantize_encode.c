// quantize_encode.c - one encoder per format.
//
// Q8_0 scales by the largest element, as every program does. The others search (quantize_fit.h), with weights
// that count large elements more: an error there changes a product most. The K formats then choose the
// integers for their groups' scales and minimums again, with the block's two halves fitted to all 256
// elements at once.
#include "model_tools/quantize_encode.h"
#include <float.h>
#include <math.h>
#include "model_tools/quantize_fit.h"
#include "quant/q4_0.h"
#include "quant/q4_1.h"
#include "quant/q5_0.h"
#include "quant/q5_1.h"
#include "quant/q5_k.h"
#include "quant/q6_k.h"
#include "quant/q8_0.h"

static float half_rounded(float x, u16 *half)
{
    *half = quant_float_to_half(x);
    return half_to_float(*half);
}

// Weights of n elements. Equal weights and squares are worse (measured:
// bench/results/2026-11-22-quantize-weights.md).
static void weigh(const float *x, float *w, int n)
{
    float sum = 0;

    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    float rms = sqrtf(sum / (float)n);
    for (int i = 0; i < n; i++)
        w[i] = rms + fabsf(x[i]) + 1e-30f;
}

static void encode_q8_0(struct q8_0 *b, const float *x)
{
    float largest = 0;

    for (int i = 0; i < 32; i++)
        largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    float d = largest / 127, inverse = d > 0 ? 1 / d : 0;
    b->d = quant_float_to_half(d);
    for (int i = 0; i < 32; i++)
        b->q[i] = (i8)roundf(x[i] * inverse);
}

// 32 elements with one scale: q in -q_size..q_size - 1, kept as q + q_size.
static void fit_32_signed(const float *x, int q_size, u16 *d, u8 q[32])
{
    struct fit fit;
    float w[32];
    const struct points p = { x, w, 32 };
    const int range[2] = { -q_size, q_size - 1 };

    weigh(x, w, 32);
    fit_signed(&fit, &p, q_size);
    const float line[2] = { half_rounded(fit.scale, d), 0 };
    fit_round(fit.q, &p, line, range);
    for (int i = 0; i < 32; i++)
        q[i] = (u8)((int)fit.q[i] + q_size);
}

static void fit_32_affine(const float *x, int q_max, u16 *d, u16 *m, u8 q[32])
{
    struct fit fit;
    float w[32];
    const struct points p = { x, w, 32 };
    const int range[2] = { 0, q_max };

    weigh(x, w, 32);
    fit_affine(&fit, &p, q_max, false);
    const float line[2] = { half_rounded(fit.scale, d), half_rounded(fit.base, m) };
    fit_round(fit.q, &p, line, range);
    for (int i = 0; i < 32; i++)
        q[i] = (u8)(int)fit.q[i];
}

// The low four bits of elements j and j + 16 share byte j.
static void pack_nibbles_32(u8 *to, const u8 *q)
{
    for (int j = 0; j < 16; j++)
        to[j] = (u8)((q[j] & 15) | (q[j + 16] & 15) << 4);
}

static void pack_fifth_bits(u8 high[4], const u8 *q)
{
    memset(high, 0, 4);
    for (int j = 0; j < 32; j++)
        high[j / 8] |= (u8)((q[j] >> 4 & 1) << j % 8);
}

static void encode_q4_0(struct q4_0 *b, const float *x)
{
    u8 q[32];

    fit_32_signed(x, 8, &b->d, q);
    pack_nibbles_32(b->q, q);
}

static void encode_q5_0(struct q5_0 *b, const float *x)
{
    u8 q[32];

    fit_32_signed(x, 16, &b->d, q);
    pack_nibbles_32(b->q, q);
    pack_fifth_bits(b->high, q);
}

static void encode_q4_1(struct q4_1 *b, const float *x)
{
    u8 q[32];

    fit_32_affine(x, 15, &b->d, &b->m, q);
    pack_nibbles_32(b->q, q);
}

static void encode_q5_1(struct q5_1 *b, const float *x)
{
    u8 q[32];

    fit_32_affine(x, 31, &b->d, &b->m, q);
    pack_nibbles_32(b->q, q);
    pack_fifth_bits(b->high, q);
}

// A block of 256 with eight groups of 32: value = d * scale * q - dmin * min.
struct affine_block {
    const float *x;
    float w[256], q[256];
    int q_max, scale[8], min[8];
    u16 d, dmin;
};

static int clamp(int v, int low, int high)
{
    return v < low ? low : v > high ? high : v;
}

static float divide(float a, float b)
{
    return b != 0 ? a / b : 0;
}

// Tries the neighbours of a group's scale and min and rounds its elements with the best pair. Returns the
// error.
static float choose_pair(struct affine_block *b, int g, float d, float dmin)
{
    const struct points p = { b->x + 32 * g, b->w + 32 * g, 32 };
    const int range[2] = { 0, b->q_max };
    int scale = b->scale[g], min = b->min[g];
    float q[32], best = INFINITY;

    for (int k = 0; k < 9; k++) {
        int s = scale + k / 3 - 1, m = min + k % 3 - 1;
        if (s < 0 || s > 63 || m < 0 || m > 63)
            continue;
        float error = fit_round(q, &p, (const float[2]){ d * (float)s, -(dmin * (float)m) }, range);
        if (!(error < best))
            continue;
        best = error;
        b->scale[g] = s;
        b->min[g] = m;
        memcpy(b->q + 32 * g, q, sizeof q);
    }
    return best;
}

// Least squares for d and dmin over the whole block, the integers being what they are.
static void refit_pair(const struct affine_block *b, float *d, float *dmin)
{
    double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;

    for (int i = 0; i < 256; i++) {
        double w = (double)b->w[i], s = (double)b->scale[i / 32] * (double)b->q[i],
               m = -(double)b->min[i / 32];
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

static void fit_affine_block(struct affine_block *b)
{
    float scale[8], min[8], d = 0, dmin = 0, best = INFINITY;
    struct fit fit;
    struct affine_block kept = *b;

    for (int g = 0; g < 8; g++) {
        fit_affine(&fit, &(struct points){ b->x + 32 * g, b->w + 32 * g, 32 }, b->q_max, true);
        scale[g] = fit.scale;
        min[g] = -fit.base;
        d = scale[g] / 63 > d ? scale[g] / 63 : d;
        dmin = min[g] / 63 > dmin ? min[g] / 63 : dmin;
    }
    for (int g = 0; g < 8; g++) {
        b->scale[g] = clamp((int)(divide(scale[g], d) + 0.5f), 0, 63);
        b->min[g] = clamp((int)(divide(min[g], dmin) + 0.5f), 0, 63);
    }
    for (int round = 0; round < 3; round++) {
        float error = 0, d_half = half_rounded(d, &b->d), dmin_half = half_rounded(dmin, &b->dmin);
        for (int g = 0; g < 8; g++)
            error += choose_pair(b, g, d_half, dmin_half);
        if (!(error < best))
            break;
        best = error;
        kept = *b;
        refit_pair(b, &d, &dmin);
    }
    *b = kept;
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

static void encode_q4_k(struct q4_k *b, const float *x)
{
    struct affine_block a = { .x = x, .q_max = 15 };

    weigh(x, a.w, 256);
    fit_affine_block(&a);
    b->d = a.d;
    b->dmin = a.dmin;
    pack_six_bit_pairs(b->scales, a.scale, a.min);
    pack_nibbles_64(b->q, a.q);
}

static void encode_q5_k(struct q5_k *b, const float *x)
{
    struct affine_block a = { .x = x, .q_max = 31 };

    weigh(x, a.w, 256);
    fit_affine_block(&a);
    b->d = a.d;
    b->dmin = a.dmin;
    pack_six_bit_pairs(b->scales, a.scale, a.min);
    pack_nibbles_64(b->q, a.q);
    memset(b->high, 0, sizeof b->high);
    for (int i = 0; i < 256; i++)
        b->high[i % 32] |= (u8)(((int)a.q[i] >> 4 & 1) << i / 32);
}

// A block of 256 with sixteen groups of 16: value = d * scale * q.
struct signed_block {
    const float *x;
    float w[256], q[256];
    int scale[16];
    u16 d;
};

static float choose_scale(struct signed_block *b, int g, float d)
{
    static const int range[2] = { -32, 31 };
    const struct points p = { b->x + 16 * g, b->w + 16 * g, 16 };
    int scale = b->scale[g];
    float q[16], best = INFINITY;

    for (int s = clamp(scale - 1, -128, 127); s <= clamp(scale + 1, -128, 127); s++) {
        float error = fit_round(q, &p, (const float[2]){ d * (float)s, 0 }, range);
        if (!(error < best))
            continue;
        best = error;
        b->scale[g] = s;
        memcpy(b->q + 16 * g, q, sizeof q);
    }
    return best;
}

static float refit_scale(const struct signed_block *b, float d)
{
    double sx = 0, ss = 0;

    for (int i = 0; i < 256; i++) {
        double s = (double)b->scale[i / 16] * (double)b->q[i], w = (double)b->w[i];
        sx += w * s * (double)b->x[i];
        ss += w * s * s;
    }
    return ss > 0 ? (float)(sx / ss) : d;
}

static void fit_signed_block(struct signed_block *b)
{
    float scale[16], largest = 0, best = INFINITY;
    struct fit fit;
    struct signed_block kept = *b;

    for (int g = 0; g < 16; g++) {
        fit_signed(&fit, &(struct points){ b->x + 16 * g, b->w + 16 * g, 16 }, 32);
        scale[g] = fit.scale;
        largest = fabsf(scale[g]) > fabsf(largest) ? scale[g] : largest;
    }
    float d = largest / -128;
    for (int g = 0; g < 16; g++)
        b->scale[g] = clamp((int)lrintf(divide(scale[g], d)), -128, 127);
    for (int round = 0; round < 3; round++) {
        float error = 0, d_half = half_rounded(d, &b->d);
        for (int g = 0; g < 16; g++)
            error += choose_scale(b, g, d_half);
        if (!(error < best))
            break;
        best = error;
        kept = *b;
        d = refit_scale(b, d);
    }
    *b = kept;
}

static void encode_q6_k(struct q6_k *b, const float *x)
{
    struct signed_block a = { .x = x };

    weigh(x, a.w, 256);
    fit_signed_block(&a);
    *b = (struct q6_k){ .d = a.d };
    for (int g = 0; g < 16; g++)
        b->scales[g] = (i8)a.scale[g];
    for (int i = 0; i < 256; i++) {
        int half = i / 128, j = i % 128 / 32, l = i % 32, q = (int)a.q[i] + 32;
        b->low[half * 64 + j % 2 * 32 + l] |= (u8)((q & 15) << j / 2 * 4);
        b->high[half * 32 + l] |= (u8)(q >> 4 << 2 * j);
    }
}

#define ENCODE_ROW(format, elements)                                 \
    static void format##_row(const float *x, void *blocks, size_t n) \
    {                                                                \
        struct format *b = blocks;                                   \
        for (size_t i = 0; i < n / (elements); i++)                  \
            encode_##format(&b[i], x + i * (elements));              \
    }

ENCODE_ROW(q4_0, 32)
ENCODE_ROW(q4_1, 32)
ENCODE_ROW(q5_0, 32)
ENCODE_ROW(q5_1, 32)
ENCODE_ROW(q8_0, 32)
ENCODE_ROW(q4_k, 256)
ENCODE_ROW(q5_k, 256)
ENCODE_ROW(q6_k, 256)

static void f32_row(const float *x, void *to, size_t n)
{
    memcpy(to, x, n * sizeof *x);
}

static void f16_row(const float *x, void *to, size_t n)
{
    u16 *h = to;

    for (size_t i = 0; i < n; i++)
        h[i] = quant_float_to_half(x[i]);
}

static void bf16_row(const float *x, void *to, size_t n)
{
    u16 *h = to;

    for (size_t i = 0; i < n; i++)
        h[i] = quant_float_to_bf16(x[i]);
}

static void (*const encoders[N_QUANTS])(const float *, void *, size_t) = {
    [QUANT_F32] = f32_row,   [QUANT_F16] = f16_row,   [QUANT_BF16] = bf16_row, [QUANT_Q4_0] = q4_0_row,
    [QUANT_Q4_1] = q4_1_row, [QUANT_Q5_0] = q5_0_row, [QUANT_Q5_1] = q5_1_row, [QUANT_Q8_0] = q8_0_row,
    [QUANT_Q4_K] = q4_k_row, [QUANT_Q5_K] = q5_k_row, [QUANT_Q6_K] = q6_k_row,
};

bool quantize_can_encode(enum quant q)
{
    return encoders[q] != NULL;
}

bool quantize_encode(enum quant q, const float *x, void *blocks, size_t n, size_t *bad)
{
    float limit = q == QUANT_F16 ? 65504.0f : q == QUANT_BF16 ? 3.38e38f : q == QUANT_F32 ? FLT_MAX : 1e5f;

    CHECK(encoders[q] && n % quant_info(q)->block_elements == 0);
    for (*bad = 0; *bad < n; ++*bad)
        if (!(fabsf(x[*bad]) <= limit)) // NaN too
            return false;
    encoders[q](x, blocks, n);
    return true;
}
