// quantize_encode.c - one encoder per format of plain numbers and of blocks of 32; super blocks of 256:
// quantize_encode_k.c.
//
// Q8_0 scales by the largest element, as every program does. The others search (quantize_fit.h) for the least
// weighted error.
#include "model_tools/quantize/quantize_encode.h"
#include <float.h>
#include <math.h>
#include "model_tools/quantize/quantize_fit.h"
#include "quant/iq4_nl.h"
#include "quant/mxfp4.h"
#include "quant/q4_0.h"
#include "quant/q4_1.h"
#include "quant/q5_0.h"
#include "quant/q5_1.h"
#include "quant/q8_0.h"

float quantize_half(float x, uint16_t *half)
{
    *half = quant_float_to_half(x);
    return half_to_float(*half);
}

static void encode_q8_0(const float *x, const float *importance, void *block)
{
    struct q8_0 *b = block;
    float largest = 0;

    (void)importance; // the largest element decides
    for (int i = 0; i < 32; i++)
        largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    float d = largest / 127, inverse = d > 0 ? 1 / d : 0;
    b->d = quant_float_to_half(d);
    for (int i = 0; i < 32; i++)
        b->q[i] = (i8)roundf(x[i] * inverse);
}

// 32 elements and their weights.
struct weighted {
    const float *x;
    float w[32];
};

static struct points points_of(struct weighted *e, const float *x, const float *importance)
{
    e->x = x;
    fit_weights(e->w, x, importance, 32);
    return (struct points){ x, e->w, 32 };
}

// One scale: q in -q_size..q_size - 1, kept as q + q_size.
static void fit_32_signed(const struct points *p, int q_size, u16 *d, u8 q[32])
{
    const int range[2] = { -q_size, q_size - 1 };
    struct fit fit;

    fit_signed(&fit, p, q_size);
    const float line[2] = { quantize_half(fit.scale, d), 0 };
    fit_round(fit.q, p, line, range);
    for (int i = 0; i < 32; i++)
        q[i] = (u8)((int)fit.q[i] + q_size);
}

static void fit_32_affine(const struct points *p, int q_max, u16 d_m[2], u8 q[32])
{
    const int range[2] = { 0, q_max };
    struct fit fit;

    fit_affine(&fit, p, q_max, false);
    const float line[2] = { quantize_half(fit.scale, &d_m[0]), quantize_half(fit.base, &d_m[1]) };
    fit_round(fit.q, p, line, range);
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

static void encode_q4_0(const float *x, const float *importance, void *block)
{
    struct q4_0 *b = block;
    struct weighted e;
    const struct points p = points_of(&e, x, importance);
    u8 q[32];

    fit_32_signed(&p, 8, &b->d, q);
    pack_nibbles_32(b->q, q);
}

static void encode_q5_0(const float *x, const float *importance, void *block)
{
    struct q5_0 *b = block;
    struct weighted e;
    const struct points p = points_of(&e, x, importance);
    u8 q[32];

    fit_32_signed(&p, 16, &b->d, q);
    pack_nibbles_32(b->q, q);
    pack_fifth_bits(b->high, q);
}

static void encode_q4_1(const float *x, const float *importance, void *block)
{
    struct q4_1 *b = block;
    struct weighted e;
    const struct points p = points_of(&e, x, importance);
    u16 d_m[2];
    u8 q[32];

    fit_32_affine(&p, 15, d_m, q);
    b->d = d_m[0];
    b->m = d_m[1];
    pack_nibbles_32(b->q, q);
}

static void encode_q5_1(const float *x, const float *importance, void *block)
{
    struct q5_1 *b = block;
    struct weighted e;
    const struct points p = points_of(&e, x, importance);
    u16 d_m[2];
    u8 q[32];

    fit_32_affine(&p, 31, d_m, q);
    b->d = d_m[0];
    b->m = d_m[1];
    pack_nibbles_32(b->q, q);
    pack_fifth_bits(b->high, q);
}

static void encode_iq4_nl(const float *x, const float *importance, void *block)
{
    static const struct fit_levels levels = { IQ4_NL_LEVELS };
    struct iq4_nl *b = block;
    struct weighted e;
    const struct points p = points_of(&e, x, importance);
    struct fit fit;
    u8 q[32];

    fit_to_levels(&fit, &p, &levels);
    fit_round_to_levels(fit.q, &p, quantize_half(fit.scale, &b->d), &levels);
    for (int i = 0; i < 32; i++)
        q[i] = (u8)fit_level(&levels, fit.q[i]);
    pack_nibbles_32(b->q, q);
}

// Of the powers of two around the one that holds the largest element, that of the least error. Larger ones
// lose small elements, smaller ones cut the largest.
static void encode_mxfp4(const float *x, const float *importance, void *block)
{
    static const struct fit_levels levels = { { -12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12, 12 } };
    static const u8 codes[16] = { 15, 14, 13, 12, 11, 10, 9, 0, 1, 2, 3, 4, 5, 6, 7, 7 };
    struct mxfp4 *b = block;
    struct weighted e;
    const struct points p = points_of(&e, x, importance);
    float largest = 0, best = INFINITY, tried[32];
    u8 q[32] = { 0 };
    int power;

    for (int i = 0; i < 32; i++)
        largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    frexpf(largest, &power); // largest is below 2^power, and 6 is the last of the values
    b->e = 0;
    for (int k = power - 4 + 127; k <= power - 1 + 127 && largest > 0; k++) {
        u8 exponent = (u8)(k < 0 ? 0 : k > 254 ? 254 : k);
        float error = fit_round_to_levels(tried, &p, mxfp4_scale(exponent), &levels);
        if (!(error < best))
            continue;
        best = error;
        b->e = exponent;
        for (int i = 0; i < 32; i++)
            q[i] = codes[fit_level(&levels, tried[i])];
    }
    pack_nibbles_32(b->q, q);
}

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

static void (*const plain[N_QUANTS])(const float *, void *, size_t) = {
    [QUANT_F32] = f32_row,
    [QUANT_F16] = f16_row,
    [QUANT_BF16] = bf16_row,
};

static quantize_block *const encoders[N_QUANTS] = {
    [QUANT_Q4_0] = encode_q4_0,
    [QUANT_Q4_1] = encode_q4_1,
    [QUANT_Q5_0] = encode_q5_0,
    [QUANT_Q5_1] = encode_q5_1,
    [QUANT_Q8_0] = encode_q8_0,
    [QUANT_Q2_K] = quantize_encode_k_q2_k,
    [QUANT_Q3_K] = quantize_encode_k_q3_k,
    [QUANT_Q4_K] = quantize_encode_k_q4_k,
    [QUANT_Q5_K] = quantize_encode_k_q5_k,
    [QUANT_Q6_K] = quantize_encode_k_q6_k,
    [QUANT_IQ4_NL] = encode_iq4_nl,
    [QUANT_IQ4_XS] = quantize_encode_k_iq4_xs,
    [QUANT_MXFP4] = encode_mxfp4,
};

bool quantize_can_encode(enum quant q)
{
    return plain[q] || encoders[q];
}

bool quantize_encode(enum quant q, const struct quantize_source *from, void *blocks, size_t *bad)
{
    float limit = q == QUANT_F16 ? 65504.0f : q == QUANT_BF16 ? 3.38e38f : q == QUANT_F32 ? FLT_MAX : 1e5f;
    const struct quant_info *info = quant_info(q);
    const float *importance = from->importance;
    unsigned char *to = blocks;

    CHECK(quantize_can_encode(q) && from->n % info->block_elements == 0);
    for (*bad = 0; *bad < from->n; ++*bad)
        if (!(fabsf(from->x[*bad]) <= limit)) // NaN too
            return false;
    if (plain[q])
        plain[q](from->x, blocks, from->n);
    for (size_t i = 0; i < from->n && encoders[q]; i += info->block_elements, to += info->block_bytes)
        encoders[q](from->x + i, importance ? importance + i : NULL, to);
    return true;
}
