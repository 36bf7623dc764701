// epilogue_pack.cuh - stores a result, beside its fp32 numbers, as the next product's packed rows, with the
// same bits as the launch of pack_rows.cu that it saves. int8 needs 32 columns at a time (packing_int8.cuh),
// bf16 any number.
#pragma once
#include <cuda_bf16.h>
#include "gemm/cuda/packing_int8.cuh"

// A number of bf16: row by row, or in tiles of PACKED_TILE_ROWS rows by 64 columns, in either order of
// columns.
static __device__ __forceinline__ __nv_bfloat16 *packed_place(const struct packed_out &next, u32 row,
                                                              u32 column)
{
    if (next.form == PACKING_BF16_ROWS)
        return (__nv_bfloat16 *)next.at + (u64)row * next.n_cols + column;
    column = next.form == PACKING_MMA ? packed_mma_column(column) : column;
    u64 line = (u64)(row / PACKED_TILE_ROWS * (next.n_cols / 64) + column / 64) * PACKED_TILE_ROWS +
               row % PACKED_TILE_ROWS;
    return (__nv_bfloat16 *)next.at + (line * 8 + (column / 8 % 8 ^ row % 8)) * 8 + column % 8;
}
static __device__ __forceinline__ void pack_put(const struct packed_out &next, u32 row, u32 column, f32 v)
{
    *packed_place(next, row, column) = __float2bfloat16_rn(v);
}
// Stores two columns, from an even one on.
static __device__ __forceinline__ void pack_put(const struct packed_out &next, u32 row, u32 column, f32 a,
                                                f32 b)
{
    if (next.form == PACKING_MMA) {
        pack_put(next, row, column, a);
        pack_put(next, row, column + 1, b);
        return;
    }
    *(__nv_bfloat162 *)packed_place(next, row, column) = __floats2bfloat162_rn(a, b);
}
// A warp stores 32 columns, from a multiple of 32 on, one a lane; any packing without a norm.
static __device__ __forceinline__ void pack_put_warp(const struct packed_out &next, u32 row, u32 column,
                                                     f32 v)
{
    if (next.form == PACKING_INT8)
        put_int8_warp(packed_int8_eight(next.at, row, next.n_cols), row, column, v);
    else
        pack_put(next, row, column + threadIdx.x % 32, v);
}

// A warp has 32 columns of eight rows as two mma products leave them, with or without a norm: lane (g, t) has
// columns 2 g and 2 g + 1, and the same + 16, of rows 2 t and 2 t + 1. Neighbours swap, so that an even g has
// columns from 4 q on, q = g / 2, of the first of both rows, an odd g of the second.
struct pack_eight {
    float4 norm[2];

    // Loads the norm's weights, before any input.
    __device__ __forceinline__ void load(const struct packed_out &next, u32 column)
    {
        const float4 *at = (const float4 *)(next.norm + column) + threadIdx.x % 32 / 8;
#pragma unroll
        for (u32 half = 0; half < 2; half++)
            norm[half] = next.norm ? at[half * 4] : make_float4(1, 1, 1, 1);
    }
    // x, z: the first row; y, w: the second.
    static __device__ __forceinline__ float4 swap(const float4 &v)
    {
        bool odd = threadIdx.x & 4;
        f32 a = __shfl_xor_sync(~0u, odd ? v.x : v.y, 4), b = __shfl_xor_sync(~0u, odd ? v.z : v.w, 4);
        return odd ? make_float4(a, b, v.y, v.w) : make_float4(v.x, v.z, a, b);
    }
    __device__ __forceinline__ void put(const struct packed_out &next, u32 column, const float4 &low,
                                        const float4 &high) const
    {
        u32 lane = threadIdx.x % 32, row = lane % 4 * 2 + lane / 4 % 2, q = lane / 8;
        float4 a = swap(low), b = swap(high);
        const f32 v[8] = { a.x * norm[0].x, a.y * norm[0].y, a.z * norm[0].z, a.w * norm[0].w,
                           b.x * norm[1].x, b.y * norm[1].y, b.z * norm[1].z, b.w * norm[1].w };
        f32 squares = squares_of_four(a) + squares_of_four(b), top = int8_top(v);
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 8));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 16));
        squares += __shfl_xor_sync(~0u, squares, 8);
        squares += __shfl_xor_sync(~0u, squares, 16);
        uint2 words = int8_words(v, int8_inverse(top));
        u32 sums = (u32)int8_sum(words.x, 0) + ((u32)int8_sum(words.y, 0) << 16);
        sums += __shfl_xor_sync(~0u, sums, 8);
        sums += __shfl_xor_sync(~0u, sums, 16);
        u8 *block = next.at + (u64)(column / 32) * PACKED_INT8_BYTES;
        ((uint2 *)block)[row * 4 + q] = words;
        if (q != 0)
            return;
        // Adds what a negative lower sum has borrowed.
        put_int8_scale(block, row, int8_scale(top), sums + ((sums & 0x8000) << 1));
        if (next.norm)
            next.squares[column / 32 * 8 + row] = squares;
    }
};
