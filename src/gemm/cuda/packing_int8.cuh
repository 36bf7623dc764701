// packing_int8.cuh - packs rows of activations as int8 with a scale for each 32 columns, in the layout of
// gemm_int8.
//
// pack_rows.cu packs any rows. An operation whose result is the next one's activations packs them itself,
// with the same bits.
#pragma once
#include "base/lang.h"
#include "gemm/cuda/packing.h"

// Eight of 32 numbers, as int8. sum: of their half of the 32; other: of the other half.
struct int8_eight {
    uint2 words;
    f32 scale;
    int sum, other;
};

// The scale of 32 numbers with this highest absolute value.
static __device__ __forceinline__ f32 int8_inverse(f32 top)
{
    f32 inverse = 0; // avoids the branches of a division

    if (top > 1e-36f)
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(top * (1 / 127.0f)));
    return inverse;
}
static __device__ __forceinline__ f32 int8_scale(f32 top)
{
    return top < 3e38f ? top * (1 / 127.0f) : __int_as_float(0x7fc00000);
}

// The highest absolute value, or infinity if there is a NaN.
static __device__ __forceinline__ f32 int8_top(const f32 (&v)[8])
{
    f32 top = 0, all = 0;

#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        top = fmaxf(top, fabsf(v[i]));
        all += fabsf(v[i]);
    }
    return all < 3e38f ? top : __int_as_float(0x7f800000);
}
// Rounded by an addition, which leaves the integer in the lowest bits of the sum: a conversion takes longer.
static __device__ __forceinline__ uint2 int8_words(const f32 (&v)[8], f32 inverse)
{
    u32 q[8];
#pragma unroll
    for (u32 i = 0; i < 8; i++)
        q[i] = __float_as_uint(__fadd_rn(__fmul_rn(v[i], inverse), 12582912.0f)); // 1.5 * 2^23
    return make_uint2(__byte_perm(__byte_perm(q[0], q[1], 0x0040), __byte_perm(q[2], q[3], 0x0040), 0x5410),
                      __byte_perm(__byte_perm(q[4], q[5], 0x0040), __byte_perm(q[6], q[7], 0x0040), 0x5410));
}
static __device__ __forceinline__ int int8_sum(u32 word, int sum)
{
    return __dp4a((int)word, 0x01010101, sum);
}

// Four neighbouring threads hold a block of 32; all lanes of a warp call it. A block with a NaN or infinity
// gets the scale NaN.
static __device__ __forceinline__ struct int8_eight to_int8(const f32 (&v)[8])
{
    f32 top = int8_top(v);
    struct int8_eight e;

    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
    e.scale = int8_scale(top);
    e.words = int8_words(v, int8_inverse(top));
    e.sum = int8_sum(e.words.x, int8_sum(e.words.y, 0));
    e.sum += __shfl_xor_sync(~0u, e.sum, 1);
    e.other = __shfl_xor_sync(~0u, e.sum, 2);
    return e;
}

// The tile of eight rows to which a row belongs.
static __device__ __forceinline__ u8 *packed_int8_eight(u8 *packed_mma, u32 row, u32 n_cols)
{
    return packed_mma + (u64)(row / 8) * (n_cols / 32) * PACKED_INT8_BYTES;
}

// Two bits of a scale are zero, which gemm_int8 relies on. sums: of the first half; in the upper 16 bits of
// the second.
static __device__ __forceinline__ void put_int8_scale(u8 *block, u32 row, f32 scale, u32 sums)
{
    *(uint2 *)(block + 256 + row % 8 * 8) = make_uint2(__float_as_uint(scale) & ~3u, sums);
}

// Columns 8 at .. 8 at + 7.
static __device__ __forceinline__ void put_int8(u8 *tile, u32 row, u32 at, const struct int8_eight &e)
{
    u8 *block = tile + (u64)(at / 4) * PACKED_INT8_BYTES;
    u32 part = at % 4, *to = (u32 *)block + (row % 8 * 4 + part % 2 * 2) * 2 + part / 2;

    to[0] = e.words.x;
    to[2] = e.words.y;
    if (part == 0)
        put_int8_scale(block, row, e.scale, (u32)(e.sum & 0xffff) | (u32)e.other << 16);
}

// A warp has 32 columns of a row, from a multiple of 32 on, one a lane: the same bits in fewer instructions.
static __device__ __forceinline__ void put_int8_warp(u8 *tile, u32 row, u32 column, f32 v)
{
    u32 lane = threadIdx.x & 31;
    // infinity for a NaN too
    f32 top = __uint_as_float(min(__reduce_max_sync(~0u, __float_as_uint(v) & 0x7fffffff), 0x7f800000));
    int q = __float2int_rn(v * int8_inverse(top)), low = __reduce_add_sync(~0u, lane < 16 ? q : 0),
        all = __reduce_add_sync(~0u, q);
    u8 *block = tile + (u64)(column / 32) * PACKED_INT8_BYTES;

    block[(row % 8 * 4 + lane % 16 / 4) * 8 + lane / 16 * 4 + lane % 4] = (u8)q;
    if (lane == 0)
        put_int8_scale(block, row, int8_scale(top), (u32)(low & 0xffff) | (u32)(all - low) << 16);
}

// The sum of four squares. Sums of 32 are made of it the same way everywhere: columns c and c + 16 first,
// then neighbours, then their neighbours.
static __device__ __forceinline__ f32 squares_of_four(const float4 &v)
{
    return __fmaf_rn(v.x, v.x, __fmul_rn(v.y, v.y)) + __fmaf_rn(v.z, v.z, __fmul_rn(v.w, v.w));
}
