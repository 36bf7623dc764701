// weight_layout.cuh - reads 32 weights of a row from their planes: eight words of int8, and value = scale * q
// + offset for each half.
#pragma once
#include "device/cuda/kernel.cuh"
#include "gemm/cuda/weight_layout.h"

template <u32 F> struct packed { // as loaded
    uint4 q[layout_has_bytes(F) ? 2 : 1];
    u32 high[2];
    u32 scale, delta;
    u32 second; // of Q3_K: the second block of its unit
};

struct unpacked {
    int q[8]; // word i: elements 4 i .. 4 i + 3
    f32 scale[2], offset[2];
};

static __device__ __forceinline__ uint4 load_once(const void *at) // 16 bytes that are not read again
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at));
    return v;
}

static __device__ __forceinline__ uint2 load_half_once(const void *at) // 8 bytes
{
    uint2 v;
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(at));
    return v;
}

template <bool ONCE> static __device__ __forceinline__ uint4 load_quants(const u8 *at)
{
    return ONCE ? load_once(at) : *(const uint4 *)at;
}
template <bool ONCE> static __device__ __forceinline__ uint4 load_twos(const u8 *at)
{
    uint2 v = ONCE ? load_half_once(at) : *(const uint2 *)at;
    return make_uint4(v.x, v.y, 0, 0);
}

struct plane_pointers { // the beginnings of the planes of a matrix, or of one row
    const u8 *quants, *high, *scales, *deltas;
};

// The scales of block `at` of 32, counted from where the planes begin.
template <u32 F>
static __device__ __forceinline__ void scales_at(const struct plane_pointers &p, u32 at, struct packed<F> &r)
{
    if (F == QUANT_IQ4_XS)
        r.scale = p.scales[at];
    else if (layout_has_two_halves(F))
        r.scale = ((const u32 *)p.scales)[at];
    else
        r.scale = ((const u16 *)p.scales)[at];
    if (layout_has_super_blocks(F))
        r.delta = ((const u32 *)p.deltas)[at / 8];
}
template <u32 F>
static __device__ __forceinline__ void high_at(const struct plane_pointers &p, u32 at, struct packed<F> &r)
{
    if (layout_has_high_bit(F))
        r.high[0] = ((const u32 *)p.high)[at];
    if (F == QUANT_Q6_K || F == QUANT_Q3_K) {
        uint2 h = ((const uint2 *)p.high)[at / layout_unit(F)];
        r.high[0] = h.x;
        r.high[1] = h.y;
    }
}

// All of it; of Q3_K with the rest of its unit. ONCE: the planes lie in memory and are not read again.
template <u32 F, bool ONCE>
static __device__ __forceinline__ struct packed<F> block_at(const struct plane_pointers &p, u32 at) {
    struct packed<F> r;
    const u8 *q = p.quants + at / layout_unit(F) * layout_quants_bytes(F, 32 * layout_unit(F));

    r.second = at % 2;
    r.q[0] = F == QUANT_Q2_K ? load_twos<ONCE>(q) : load_quants<ONCE>(q);
    if (layout_has_bytes(F))
        r.q[layout_has_bytes(F)] = load_quants<ONCE>(q + 16);
    high_at<F>(p, at, r);
    scales_at<F>(p, at, r);
    return r;
}

// A lane's part of its own row in shared memory: a block, or a whole unit with a scale for each 16 in the
// bytes of r.scale.
template <u32 F>
static __device__ __forceinline__ struct packed<F> unit_at(const struct plane_pointers &p, u32 at) {
    if (layout_unit(F) == 1)
        return block_at<F, false>(p, at);
    struct packed<F> r = block_at<F, false>(p, 2 * at);
    r.scale = ((const u32 *)p.scales)[at];
    return r;
}

template <u32 F>
static __device__ __forceinline__ struct packed<F> load_block(const struct weight_planes &p, u32 row,
                                                              u32 block) {
    // less than 2^37 numbers
    return block_at<F, true>({ p.quants, p.high, p.scales, p.deltas }, row *(p.n_cols / 32) + block);
}

static __device__ __forceinline__ f32
half_of(u32 bits)
{
    return __half2float(__ushort_as_half((unsigned short)bits));
}
template <u32 F> static __device__ __forceinline__ f32 delta_of(u32 bits)
{
    return F == QUANT_Q8_16 ? __uint_as_float(bits) : half_of(bits);
}
static __device__ __forceinline__ f32 signed_byte(u32 word, u32 byte)
{
    return (f32)(int)(signed char)(word >> 8 * byte & 255);
}

// The values of a table of sixteen, four per word.
template <u32 F> static __device__ __forceinline__ void table_of(u32 (&table)[4])
{
    const u32 iq4[4] = { 0xbfad9881, 0xf6eaddcf, 0x26190d01, 0x71594535 },
              mxfp4[4] = { 0x03020100, 0x0c080604, 0xfdfeff00, 0xf4f8fafc };
#pragma unroll
    for (u32 i = 0; i < 4; i++)
        table[i] = F == QUANT_MXFP4 ? mxfp4[i] : iq4[i];
}

// Looks up eight indices; eight bytes of a table.
template <u32 F> static __device__ __forceinline__ void look_up(u32 q, int *low, int *high)
{
    u32 table[4], place = q & 0x77777777, half = (q >> 1 & 0x44444444) | 0x32103210;

    table_of<F>(table);
    *low = (int)__byte_perm(__byte_perm(table[0], table[1], place), __byte_perm(table[2], table[3], place),
                            half);
    *high = (int)__byte_perm(__byte_perm(table[0], table[1], place >> 16),
                             __byte_perm(table[2], table[3], place >> 16), half >> 16);
}

// Word i of a block's nibbles, elements 4 i .. 4 i + 3 and 16 more, as integers. Their zero points are in the
// offsets.
template <u32 F>
static __device__ __forceinline__ void unpack_word(u32 w, const u32 (&bits)[2], u32 i, int *low, int *high)
{
    if (layout_has_table(F)) {
        look_up<F>(w, low, high);
    } else {
        *low = (int)(w & 0x0f0f0f0f);
        *high = (int)(w >> 4 & 0x0f0f0f0f);
    }
    if (layout_has_high_bit(F)) {
        *low |= (int)((bits[0] >> i & 0x01010101) << 4);
        *high |= (int)((bits[0] >> (i + 4) & 0x01010101) << 4);
    }
    if (F == QUANT_Q6_K) {
        *low |= (int)((bits[0] >> 2 * i & 0x03030303) << 4);
        *high |= (int)((bits[1] >> 2 * i & 0x03030303) << 4);
    }
}
// The same from the two words of a block of Q2_K.
static __device__ __forceinline__ void unpack_twos(u32 first, u32 second, u32 i, int *low, int *high)
{
    *low = (int)(first >> 2 * i & 0x03030303);
    *high = (int)(second >> 2 * i & 0x03030303);
}
// The same from word i of a unit of Q3_K: the second block's integers are in `high`, but for the low two bits
// of its second half.
static __device__ __forceinline__ void unpack_threes(u32 w, const u32 (&bits)[2], u32 i, u32 second, int *low,
                                                     int *high)
{
    u32 b = bits[i / 2], top = i % 2 ? b >> 2 : b << 2;

    *low = (int)((second ? i % 2 ? b : b << 4 : w) >> 5 & 0x07070707);
    *high = (int)((w >> (second ? 0 : 2) & (second ? 0x03030303 : 0x07070707)) |
                  (top & (second ? 0x04040404 : 0)));
}
template <u32 F> static __device__ __forceinline__ void unpack_ints(const struct packed<F> &r, int (&q)[8])
{
    const u32 w[4] = { r.q[0].x, r.q[0].y, r.q[0].z, r.q[0].w };

    if (layout_has_bytes(F)) {
        const uint4 &second = r.q[layout_has_bytes(F)];
        q[0] = w[0], q[1] = w[1], q[2] = w[2], q[3] = w[3];
        q[4] = second.x, q[5] = second.y, q[6] = second.z, q[7] = second.w;
        return;
    }
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        if (F == QUANT_Q2_K)
            unpack_twos(w[0], w[1], i, &q[i], &q[i + 4]);
        else if (F == QUANT_Q3_K)
            unpack_threes(w[i], r.high, i, r.second, &q[i], &q[i + 4]);
        else
            unpack_word<F>(w[i], r.high, i, &q[i], &q[i + 4]);
    }
}

template <u32 F>
static __device__ __forceinline__ void unpack_scales(const struct packed<F> &r, f32 (&scale)[2],
                                                     f32 (&offset)[2])
{
    f32 d = F == QUANT_MXFP4 ? __uint_as_float(r.scale << 16) : half_of(r.scale);

    scale[0] = scale[1] = d;
    offset[0] = offset[1] = 0;
    if (!layout_has_super_blocks(F) && layout_zero(F))
        offset[0] = offset[1] = d * -(f32)layout_zero(F);
    if (layout_has_two_halves(F))
        offset[0] = offset[1] = half_of(r.scale >> 16);
    if (!layout_has_super_blocks(F))
        return;
    d = delta_of<F>(r.delta);
    if (F == QUANT_Q4_K || F == QUANT_Q5_K) {
        scale[0] = scale[1] = d * (f32)(r.scale & 255);
        offset[0] = offset[1] = -half_of(r.delta >> 16) * (f32)(r.scale >> 8);
    } else if (F == QUANT_IQ4_XS) {
        scale[0] = scale[1] = d * signed_byte(r.scale, 0);
    } else {
        for (u32 h = 0; h < 2; h++) {
            u32 byte = r.scale >> 8 * h & 255;
            scale[h] = F == QUANT_Q2_K ? d * (f32)(byte & 15) : d * signed_byte(r.scale, h);
            offset[h] = F == QUANT_Q2_K ? -half_of(r.delta >> 16) * (f32)(byte >> 4)
                                        : scale[h] * -(f32)layout_zero(F);
        }
    }
}

template <u32 F> static __device__ __forceinline__ struct unpacked unpack_block(const struct packed<F> &r)
{
    struct unpacked u;
    unpack_ints<F>(r, u.q);
    unpack_scales<F>(r, u.scale, u.offset);
    return u;
}

// Runs BODY with the constant F for the run-time format.
#define FOR_QUANTISED(format, BODY)           \
    switch (format) {                         \
        QUANT_BLOCK_FORMATS(FOR_FORMAT, BODY) \
    }
#define FOR_FORMAT(NAME, name, BODY)    \
    case QUANT_##NAME: {                \
        constexpr u32 F = QUANT_##NAME; \
        BODY;                           \
        break;                          \
    }
