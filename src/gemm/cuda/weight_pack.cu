// weight_pack.cu - repacks a matrix of GGUF blocks into the planes of weight_layout.h, once per load. One
// thread a block; no value changes.
//
//   file:    block 0 | block 1 | ...          each with its scales between its quants
//   memory:  quants of all rows | high bits | scales | deltas      a warp loads lines, 16 bytes a lane
#include "device/cuda/kernel.cuh"
#include "gemm/cuda/weight_layout.h"
#include "quant/iq4_xs.h"
#include "quant/mxfp4.h"
#include "quant/q2_k.h"
#include "quant/q3_k.h"
#include "quant/q4_0.h"
#include "quant/q4_1.h"
#include "quant/q5_0.h"
#include "quant/q5_1.h"
#include "quant/q5_k.h"
#include "quant/q6_k.h"
#include "quant/q8_0.h"
#include "quant/q8_16.h"

// The destination of block `at` (of 32 elements) of the matrix.
struct destination {
    u8 *quants, *high, *scales, *deltas;
};

static __device__ struct destination find(const struct weight_planes &p, u64 row, u32 block)
{
    struct destination d;
    d.quants = (u8 *)p.quants + row * layout_quants_bytes(p.format, p.n_cols) +
               block * layout_quants_bytes(p.format, 32);
    d.high =
        (u8 *)p.high + row * layout_high_bytes(p.format, p.n_cols) + block * layout_high_bytes(p.format, 32);
    d.scales = (u8 *)p.scales + row * layout_scales_bytes(p.format, p.n_cols);
    d.deltas = (u8 *)p.deltas + row * layout_deltas_bytes(p.format, p.n_cols);
    return d;
}

// q + zero in 0..15; of wider integers only the low four bits.
static __device__ void put_nibbles(u8 *to, const i8 *q, int zero)
{
    for (u32 j = 0; j < 16; j++)
        to[j] = (u8)(((q[j] + zero) & 15) | ((q[j + 16] + zero) & 15) << 4);
}
static __device__ void put_fifth_bits(u8 *to, const i8 *q, int zero)
{
    for (u32 b = 0; b < 4; b++) {
        u32 bits = 0;
        for (u32 i = 0; i < 8; i++)
            bits |= (u32)((q[4 * i + b] + zero) >> 4 & 1) << i;
        to[b] = (u8)bits;
    }
}
static __device__ void put_twos(u8 *to, const i8 *q, int zero, u32 bit) // bit `bit` of this one and the next
{
    for (u32 b = 0; b < 8; b++) {
        u32 bits = 0;
        for (u32 i = 0; i < 4; i++)
            bits |= (u32)((q[4 * (b / 4 * 4 + i) + b % 4] + zero) >> bit & 3) << 2 * i;
        to[b] = (u8)bits;
    }
}
// A unit of Q3_K.
static __device__ void put_threes(u8 *quants, u8 *high, const i8 *q, int zero)
{
    for (u32 j = 0; j < 16; j++) {
        u32 v[4];
        for (u32 k = 0; k < 4; k++)
            v[k] = (u32)(q[16 * k + j] + zero);
        quants[j] = (u8)(v[0] << 5 | v[1] << 2 | (v[3] & 3));
        u32 nibble = v[2] << 1 | v[3] >> 2, at = j / 8 * 4 + j % 4;
        high[at] = (u8)(j % 8 < 4 ? nibble : high[at] | nibble << 4);
    }
}
// From 16 bytes of the file, with element j low and j + 16 high in byte j.
static __device__ void put_places(u8 *to, const u8 *q)
{
    for (u32 i = 0; i < 4; i++) {
        u32 word = 0;
        for (u32 b = 0; b < 4; b++)
            word |= (u32)(q[4 * i + b] & 15) << 4 * b | (u32)(q[4 * i + b] >> 4) << (16 + 4 * b);
        ((u32 *)to)[i] = word;
    }
}
static __device__ void put_half(u8 *to, u16 half)
{
    *(u16 *)to = half;
}

// GGUF blocks lie at any address, even or odd: they are copied first.
template <typename Block> static __device__ Block fetch(const u8 *from, u64 at)
{
    Block b;
    for (u32 i = 0; i < sizeof b; i++)
        ((u8 *)&b)[i] = from[at * sizeof b + i];
    return b;
}

static __device__ void pack_small(const struct pack_params &p, u64 at)
{
    u32 per_row = p.to.n_cols / 32, block = at % per_row;
    struct destination d = find(p.to, at / per_row, block);
    i8 q[32];

    if (p.to.format == QUANT_Q4_0) {
        struct q4_0 b = fetch<struct q4_0>(p.from, at);
        q4_0_ints(&b, q);
        put_nibbles(d.quants, q, 8);
        put_half(d.scales + block * 2, b.d);
    } else if (p.to.format == QUANT_Q4_1) {
        struct q4_1 b = fetch<struct q4_1>(p.from, at);
        q4_1_ints(&b, q);
        put_nibbles(d.quants, q, 0);
        put_half(d.scales + block * 4, b.d);
        put_half(d.scales + block * 4 + 2, b.m);
    } else if (p.to.format == QUANT_Q5_0) {
        struct q5_0 b = fetch<struct q5_0>(p.from, at);
        q5_0_ints(&b, q);
        put_nibbles(d.quants, q, 16);
        put_fifth_bits(d.high, q, 16);
        put_half(d.scales + block * 2, b.d);
    } else if (p.to.format == QUANT_Q5_1) {
        struct q5_1 b = fetch<struct q5_1>(p.from, at);
        q5_1_ints(&b, q);
        put_nibbles(d.quants, q, 0);
        put_fifth_bits(d.high, q, 0);
        put_half(d.scales + block * 4, b.d);
        put_half(d.scales + block * 4 + 2, b.m);
    } else if (p.to.format == QUANT_Q8_0) {
        struct q8_0 b = fetch<struct q8_0>(p.from, at);
        for (u32 i = 0; i < 32; i++)
            d.quants[i] = (u8)b.q[i];
        put_half(d.scales + block * 2, b.d);
    } else if (p.to.format == QUANT_IQ4_NL) {
        struct iq4_nl b = fetch<struct iq4_nl>(p.from, at);
        put_places(d.quants, b.q);
        put_half(d.scales + block * 2, b.d);
    } else {
        struct mxfp4 b = fetch<struct mxfp4>(p.from, at);
        put_places(d.quants, b.q);
        put_half(d.scales + block * 2, (u16)(__float_as_uint(mxfp4_scale(b.e)) >> 16)); // the rest is zero
    }
}

// The parts of 256 elements: the quants of eight blocks, then sixteen bytes of scales and the two deltas.
static __device__ void put_super(const struct pack_params &p, u64 at, const i8 *q, int zero)
{
    u32 per_row = p.to.n_cols / 256;

    for (u32 g = 0; g < 8; g++) {
        struct destination d = find(p.to, at / per_row, at % per_row * 8 + g);
        if (p.to.format == QUANT_Q2_K)
            put_twos(d.quants, q + 32 * g, 0, 0);
        else if (p.to.format != QUANT_Q3_K)
            put_nibbles(d.quants, q + 32 * g, zero);
        if (p.to.format == QUANT_Q5_K)
            put_fifth_bits(d.high, q + 32 * g, zero);
        if (p.to.format == QUANT_Q6_K)
            put_twos(d.high, q + 32 * g, zero, 4);
        if (p.to.format == QUANT_Q3_K && g % 2 == 0)
            put_threes(d.quants, d.high, q + 32 * g, zero);
    }
}
static __device__ void put_scales(const struct pack_params &p, u64 at, const u8 *scales, u16 delta,
                                  u16 delta_min)
{
    u32 per_row = p.to.n_cols / 256, block = at % per_row;
    struct destination d = find(p.to, at / per_row, 0);

    u32 bytes = (u32)layout_scales_bytes(p.to.format, 256);
    for (u32 i = 0; i < bytes; i++)
        d.scales[block * bytes + i] = scales[i];
    put_half(d.deltas + block * 4, delta);
    put_half(d.deltas + block * 4 + 2, delta_min);
}

// Larger than the others: read in place, which is at a multiple of four.
static __device__ void pack_bytes(const struct pack_params &p, u64 at)
{
    const struct q8_16 *b = (const struct q8_16 *)p.from + at;
    u32 per_row = p.to.n_cols / 256, block = at % per_row;
    struct destination d = find(p.to, at / per_row, block * 8);

    for (u32 i = 0; i < 256; i++)
        d.quants[i] = (u8)b->q[i];
    for (u32 i = 0; i < 16; i++)
        d.scales[block * 16 + i] = (u8)b->scales[i];
    *(f32 *)(d.deltas + block * 4) = b->d;
}

static __device__ void pack_super(const struct pack_params &p, u64 at)
{
    i8 q[256];
    u8 scales[16];

    if (p.to.format == QUANT_Q2_K) {
        struct q2_k b = fetch<struct q2_k>(p.from, at);
        q2_k_ints(&b, q);
        put_super(p, at, q, 0);
        put_scales(p, at, b.scales, b.d, b.dmin);
    } else if (p.to.format == QUANT_Q3_K) {
        struct q3_k b = fetch<struct q3_k>(p.from, at);
        q3_k_ints(&b, q);
        put_super(p, at, q, 4);
        for (u32 i = 0; i < 16; i++)
            scales[i] = (u8)q3_k_scale(&b, i);
        put_scales(p, at, scales, b.d, 0);
    } else if (p.to.format == QUANT_Q4_K || p.to.format == QUANT_Q5_K) {
        struct q5_k five;
        struct q4_k four;
        if (p.to.format == QUANT_Q4_K) {
            four = fetch<struct q4_k>(p.from, at);
            q4_k_ints(&four, q);
        } else {
            five = fetch<struct q5_k>(p.from, at);
            q5_k_ints(&five, q);
        }
        const u8 *packed = p.to.format == QUANT_Q4_K ? four.scales : five.scales;
        put_super(p, at, q, 0);
        for (u32 g = 0; g < 8; g++) {
            struct q4_k_pair pair = q4_k_scale(packed, g);
            scales[2 * g] = pair.scale;
            scales[2 * g + 1] = pair.min;
        }
        put_scales(p, at, scales, p.to.format == QUANT_Q4_K ? four.d : five.d,
                   p.to.format == QUANT_Q4_K ? four.dmin : five.dmin);
    } else if (p.to.format == QUANT_Q6_K) {
        struct q6_k b = fetch<struct q6_k>(p.from, at);
        q6_k_ints(&b, q);
        put_super(p, at, q, 32);
        put_scales(p, at, (const u8 *)b.scales, b.d, 0);
    } else {
        struct iq4_xs b = fetch<struct iq4_xs>(p.from, at);
        u32 per_row = p.to.n_cols / 256;
        for (u32 g = 0; g < 8; g++) {
            struct destination d = find(p.to, at / per_row, at % per_row * 8 + g);
            put_places(d.quants, b.q + 16 * g);
            scales[g] = (u8)iq4_xs_scale(&b, g);
        }
        put_scales(p, at, scales, b.d, 0);
    }
}

extern "C" __global__ void pack_weight_layout(struct pack_params p)
{
    u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;

    if (at >= p.n_blocks)
        return;
    if (p.to.format == QUANT_Q8_16)
        pack_bytes(p, at);
    else if (layout_has_super_blocks(p.to.format))
        pack_super(p, at);
    else
        pack_small(p, at);
}
