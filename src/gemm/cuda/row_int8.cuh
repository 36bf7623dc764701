// row_int8.cuh - shared by the kernels for one row of activations: the row as int8, a dot product with 32
// weights, a block's pairs.
//
// A row becomes int8 with a scale for each 32. Formats with a minimum or a zero point also need the sums of
// each half. Sums inside 32 are exact integers.
#pragma once
#include "gemm/cuda/epilogue.cuh"
#include "gemm/cuda/packing_int8.cuh"

// In dynamic shared memory: elements 0-15 and 16-31 of each block, its scale, and the sums of the two halves.
struct row_int8 {
    uint4 *low, *high;
    f32 *scale;
    int2 *sums;
};

static __device__ __forceinline__ struct row_int8 row_int8_at(unsigned char *shared, u32 n_blocks)
{
    struct row_int8 x;
    x.low = (uint4 *)shared;
    x.high = x.low + n_blocks;
    x.sums = (int2 *)(x.high + n_blocks);
    x.scale = (f32 *)(x.sums + n_blocks);
    return x;
}

// Eight columns of a row or of a norm; i is clamped below n.
struct float8 {
    float4 a, b;
};
static __device__ __forceinline__ struct float8 load_eight(const f32 *from, u32 i, u32 n)
{
    const float4 *at = (const float4 *)from + 2 * min(i, n - 1);
    return { at[0], at[1] };
}
static __device__ __forceinline__ f32 squares_of(const struct float8 &v)
{
    return v.a.x * v.a.x + v.a.y * v.a.y + v.a.z * v.a.z + v.a.w * v.a.w + v.b.x * v.b.x + v.b.y * v.b.y +
           v.b.z * v.b.z + v.b.w * v.b.w;
}

static __device__ __forceinline__ void quantise_eight(const struct row_int8 &x, u32 at, const f32 (&v)[8],
                                                      bool exists)
{
    u32 block = at / 4, part = at % 4;
    struct int8_eight e = to_int8(v);

    if (!exists)
        return;
    ((uint2 *)(part < 2 ? x.low : x.high))[block * 2 + part % 2] = e.words;
    if (part == 0) {
        x.scale[block] = e.scale;
        x.sums[block] = make_int2(e.sum, e.other);
    }
}

static constexpr __device__ bool has_halves(u32 format) // a scale for each 16
{
    return format == QUANT_Q2_K || format == QUANT_Q3_K || format == QUANT_Q6_K || format == QUANT_Q8_16;
}
static constexpr __device__ bool has_minimum(u32 format)
{
    return layout_has_two_halves(format) || format == QUANT_Q2_K || format == QUANT_Q4_K ||
           format == QUANT_Q5_K;
}
static constexpr __device__ bool is_nibbles(u32 format) // only 16 bytes of unsigned nibbles
{
    return format == QUANT_Q4_0 || format == QUANT_Q4_1 || format == QUANT_Q4_K;
}

// Scales of halves are integers: up to 63, and products below 2^15.
static constexpr __device__ bool has_integer_scales(u32 format)
{
    return format == QUANT_Q2_K || format == QUANT_Q3_K;
}

// 32 activations as a dot product reads them. The sums start at the bits of the float 1.5 * 2^23, less what
// the zero point adds: read as a float, the result is that number plus the sum, without a conversion.
template <u32 F> struct facing {
    int q[8], start[2];
    u32 halves; // both sums as 16 bits, for integer scales
    f32 scale, sums[2];
};
static constexpr __device__ f32 FACING_ZERO = 12582912.0f;

template <u32 F>
static __device__ __forceinline__ struct facing<F> face(const struct row_int8 &x, u32 block) {
    uint4 low = x.low[block], high = x.high[block];
    int2 sums = x.sums[block];
    constexpr bool halves = has_halves(F);
    constexpr int start = has_integer_scales(F) ? 0 : 0x4b400000;
    struct facing<F> f = {
        {
            (int)low.x, (int)low.y, (int)low.z, (int)low.w, (int)high.x, (int)high.y, (int)high.z, (int)high.w
        }
    };

    f.scale = x.scale[block];
    f.start[0] = start - (int)layout_zero(F) * (halves ? sums.x : sums.x + sums.y);
    f.start[1] = halves ? start - (int)layout_zero(F) * sums.y : 0;
    f.halves = __byte_perm(sums.x, sums.y, 0x5410);
    f.sums[0] = f.scale * (f32)(halves ? sums.x : sums.x + sums.y);
    f.sums[1] = f.scale * (f32)sums.y;
    return f;
}

static __device__ __forceinline__ int
dot_unsigned(u32 w, int x, int sum)
{
    asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(w), "r"(x));
    return sum;
}

// One of two tables: an index of 8 and more takes a byte's sign, which is 0 in tables with values up to 127.
static __device__ __forceinline__ int below_eight(u32 first, u32 second, u32 places)
{
    u32 bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(first), "r"(second), "r"(places));
    return (int)bytes;
}

// The values at indices below 8 have one sign, the others the other one, so each side is summed on its own,
// without sign.
template <u32 F>
static __device__ __forceinline__ int dot_places(const struct packed<F> &w, const struct facing<F> &x)
{
    constexpr bool mxfp4 = F == QUANT_MXFP4;
    constexpr u32 low[2] = { mxfp4 ? 0x03020100u : 0x4153687fu, mxfp4 ? 0x0c080604u : 0x0a162331u };
    constexpr u32 high[2] = { mxfp4 ? 0x03020100u : 0x26190d01u, mxfp4 ? 0x0c080604u : 0x71594535u };
    const u32 words[4] = { w.q[0].x, w.q[0].y, w.q[0].z, w.q[0].w };
    int below = 0, above = 0;

#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        u32 turned = words[i] ^ 0x88888888;
        below = __dp4a(below_eight(low[0], low[1], words[i]), x.q[i], below);
        above = __dp4a(below_eight(high[0], high[1], turned), x.q[i], above);
        below = __dp4a(below_eight(low[0], low[1], words[i] >> 16), x.q[4 + i], below);
        above = __dp4a(below_eight(high[0], high[1], turned >> 16), x.q[4 + i], above);
    }
    return mxfp4 ? below - above : above - below;
}

// High nibbles are multiplied where they are; sixteen times the sum loses nothing when it is shifted back.
template <u32 F>
static __device__ __forceinline__ void dot_ints(const struct packed<F> &w, const struct facing<F> &x,
                                                int *first, int *second)
{
    int low = x.start[0], high = 0;

    if (layout_has_table(F)) {
        low += dot_places(w, x);
    } else if (is_nibbles(F)) {
        const u32 words[4] = { w.q[0].x, w.q[0].y, w.q[0].z, w.q[0].w };
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            low = dot_unsigned(words[i] & 0x0f0f0f0f, x.q[i], low);
            high = dot_unsigned(words[i] & 0xf0f0f0f0, x.q[4 + i], high);
        }
        high >>= 4;
    } else {
        int q[8];
        unpack_ints<F>(w, q);
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            low = __dp4a(q[i], x.q[i], low);
            high = __dp4a(q[4 + i], x.q[4 + i], high);
        }
    }
    *first = has_halves(F) ? low : low + high;
    *second = x.start[1] + high;
}

// A byte as a float, without a conversion.
static __device__ __forceinline__ f32 byte_number(u32 word, u32 byte)
{
    return __uint_as_float(__byte_perm(word, 0x4b000000, 0x7650 + byte)) - 8388608.0f;
}
template <u32 F>
static __device__ __forceinline__ void block_scales(const struct packed<F> &w, f32 (&scale)[2],
                                                    f32 (&offset)[2])
{
    if (F != QUANT_Q4_K && F != QUANT_Q5_K) {
        unpack_scales<F>(w, scale, offset);
        return;
    }
    scale[0] = scale[1] = half_of(w.delta) * byte_number(w.scale, 0);
    offset[0] = offset[1] = -half_of(w.delta >> 16) * byte_number(w.scale, 1);
}

static __device__ __forceinline__ f32 from_facing(int v) // of a sum that began at FACING_ZERO's bits
{
    return __int_as_float(v) - FACING_ZERO;
}

// With integer scales: halves are added up before the conversion to float.
template <u32 F>
static __device__ __forceinline__ f32 dot_halves(const struct packed<F> &w, const struct facing<F> &x,
                                                 f32 sum)
{
    int first, second;

    dot_ints<F>(w, x, &first, &second);
    int all = __dp2a_lo((int)__byte_perm(first, second, 0x5410),
                        (int)(F == QUANT_Q2_K ? w.scale & 0x0f0f : w.scale), 0x4b400000);
    sum = fmaf(x.scale * half_of(w.delta), from_facing(all), sum);
    if (F == QUANT_Q2_K) {
        int least = __dp2a_lo((int)x.halves, (int)(w.scale >> 4 & 0x0f0f), 0x4b400000);
        sum = fmaf(-x.scale * half_of(w.delta >> 16), from_facing(least), sum);
    }
    return sum;
}

template <u32 F>
static __device__ __forceinline__ f32 dot_block(const struct packed<F> &w, const struct facing<F> &x, f32 sum)
{
    if (has_integer_scales(F))
        return dot_halves<F>(w, x, sum);
    f32 scale[2], offset[2];
    int first, second;

    block_scales<F>(w, scale, offset);
    dot_ints<F>(w, x, &first, &second);
    if (has_halves(F))
        sum += x.scale * (scale[0] * from_facing(first) + scale[1] * from_facing(second));
    else
        sum += x.scale * scale[0] * from_facing(first);
    if (has_minimum(F))
        sum += offset[0] * x.sums[0];
    return sum;
}

// A unit of Q3_K (weight_layout.h): each half's integers are multiplied where they lie, and their sum is
// shifted back.
static __device__ __forceinline__ f32 dot_threes(const struct packed<QUANT_Q3_K> &w,
                                                 const struct facing<QUANT_Q3_K> (&x)[2], f32 sum)
{
    const u32 words[4] = { w.q[0].x, w.q[0].y, w.q[0].z, w.q[0].w };
    int first = x[0].start[0] * 32, second = x[0].start[1] * 4, third = x[1].start[0] * 2,
        fourth = x[1].start[1], odd = 0;

#pragma unroll
    for (u32 i = 1; i < 4; i += 2)
        odd = dot_unsigned(w.high[i / 2] & 0xe0e0e0e0, x[1].q[i], odd);
    third += odd >> 4;
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        u32 bits = w.high[i / 2], top = i % 2 ? bits >> 2 : bits << 2;
        first = dot_unsigned(words[i] & 0xe0e0e0e0, x[0].q[i], first);
        second = dot_unsigned(words[i] & 0x1c1c1c1c, x[0].q[4 + i], second);
        if (i % 2 == 0)
            third = dot_unsigned(bits & 0x0e0e0e0e, x[1].q[i], third);
        fourth = dot_unsigned((words[i] & 0x03030303) | (top & 0x04040404), x[1].q[4 + i], fourth);
    }
    int one = __dp2a_lo((int)__byte_perm(first >> 5, second >> 2, 0x5410), (int)w.scale, 0x4b400000);
    int two = __dp2a_hi((int)__byte_perm(third >> 1, fourth, 0x5410), (int)w.scale, 0x4b400000);
    return fmaf(half_of(w.delta), x[0].scale * from_facing(one) + x[1].scale * from_facing(two), sum);
}

template <u32 F>
static __device__ __forceinline__ f32 dot_unit(const struct packed<F> &w,
                                               const struct facing<F> (&x)[layout_unit(F)], f32 sum)
{
    if constexpr (F == QUANT_Q3_K)
        return dot_threes(w, x, sum);
    else
        return dot_block<F>(w, x[0], sum);
}

struct tasks { // a block's pairs [first, end); a warp takes each `step`-th
    u32 first, end;
};
static __device__ __forceinline__ struct tasks tasks_of(const struct gemm_params &p)
{
    struct tasks t;
    // 32 bits: a 64-bit division costs more than the rest of the prologue
    t.first = p.first_pair + p.n_pairs * blockIdx.x / gridDim.x;
    t.end = p.first_pair + p.n_pairs * (blockIdx.x + 1) / gridDim.x;
    return t;
}
