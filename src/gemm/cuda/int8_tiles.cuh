// int8_tiles.cuh - packs results as int8 in tiles, 64 or 128 columns of a row with a scale: what
// gemm_staged_int8 multiplies. The layout is in packing.h.
#pragma once
#include "gemm/cuda/packing_int8.cuh"

// The higher absolute value; NaN if one is.
static __device__ __forceinline__ f32 int8_higher(f32 top, f32 v)
{
    f32 higher;
#if __CUDA_ARCH__ >= 800
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(higher) : "f"(top), "f"(fabsf(v)));
#else
    higher = isnan(v) || isnan(top) ? v + top : fmaxf(top, fabsf(v));
#endif
    return higher;
}
// Of LANES neighbouring lanes.
template <u32 LANES> static __device__ __forceinline__ f32 int8_highest(f32 top)
{
#pragma unroll
    for (u32 i = 1; i < LANES; i *= 2)
        top = int8_higher(top, __shfl_xor_sync(~0u, top, i));
    return top;
}
// The nearest integer is in the low byte: a conversion takes four times as long as an addition.
static __device__ __forceinline__ u32 int8_byte(f32 v, f32 inverse)
{
    return __float_as_uint(fmaf(v, inverse, 12582912.0f));
}
// In the low half.
static __device__ __forceinline__ u32 int8_two(f32 a, f32 b, f32 inverse)
{
    return __byte_perm(int8_byte(a, inverse), int8_byte(b, inverse), 0x7740);
}

// A word of four columns, of two pairs of eights of columns: a lane has columns 2 t and 2 t + 1 of both
// eights, t = lane % 4, and gets four neighbours, those from int8_word_column on.
static __device__ __forceinline__ u32 int8_word(u32 first, u32 second)
{
    bool odd = threadIdx.x & 1;
    u32 got = __shfl_xor_sync(~0u, odd ? first : second, 1);
    return odd ? __byte_perm(got, second, 0x5410) : __byte_perm(first, got, 0x5410);
}
static __device__ __forceinline__ u32 int8_word_column()
{
    return threadIdx.x % 2 * 8 + threadIdx.x % 4 / 2 * 4;
}

// A warp has 128 neighbouring columns of a row, from a multiple of 128 on, four a lane.
static __device__ __forceinline__ void put_int8_chunk(u8 *packed, u32 n_cols, u32 row, u32 column,
                                                      const float4 &v, bool wide)
{
    u8 *chunk = packed + int8_chunk_at(row, column, n_cols);
    f32 top = int8_higher(int8_higher(int8_higher(fabsf(v.x), v.y), v.z), v.w);

    if (wide) // absolute values have the order of their bits, a NaN above all
        top = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(top)));
    else
        top = int8_highest<INT8_SCALE_COLUMNS / 4>(top);
    f32 inverse = int8_inverse(top);
    *(u32 *)(chunk + int8_number_at(row, column)) =
        __byte_perm(int8_two(v.x, v.y, inverse), int8_two(v.z, v.w, inverse), 0x5410);
    if (threadIdx.x % (INT8_SCALE_COLUMNS / 4) == 0)
        *(f32 *)(chunk + int8_scale_at(row, column)) = int8_scale(top);
}
