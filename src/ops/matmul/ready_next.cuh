// ready_next.cuh - a result that goes, beside its fp32 numbers, to where the next command's product wants its rows, with the same bits
// as the launch of ready.cu that it saves. int8 needs 32 columns at a time (ready_int8.cuh), bf16 any.
#pragma once
#include <cuda_bf16.h>
#include "ops/matmul/ready_int8.cuh"

// A number in tiles of READY_ROWS rows by 64 columns.
static __device__ __forceinline__ __nv_bfloat16 *ready_place(const struct ready_next &next, u32 row, u32 column)
{
    u64 line = (u64)(row / READY_ROWS * (next.n_cols / 64) + column / 64) * READY_ROWS + row % READY_ROWS;
    return (__nv_bfloat16 *)next.at + (line * 8 + (column / 8 % 8 ^ row % 8)) * 8 + column % 8;
}
static __device__ __forceinline__ void put_next(const struct ready_next &next, u32 row, u32 column, f32 v)
{
    *ready_place(next, row, column) = __float2bfloat16_rn(v);
}
// Two columns, from an even one on.
static __device__ __forceinline__ void put_next(const struct ready_next &next, u32 row, u32 column, f32 a, f32 b)
{
    *(__nv_bfloat162 *)ready_place(next, row, column) = __floats2bfloat162_rn(a, b);
}
// A warp has 32 columns, from a multiple of 32 on, one a lane; any form.
static __device__ __forceinline__ void put_next_warp(const struct ready_next &next, u32 row, u32 column, f32 v)
{
    if (next.form == READY_FOR_RING)
        put_int8_warp(ready_int8_tile(next.at, row, next.n_cols), row, column, v);
    else
        put_next(next, row, column + threadIdx.x % 32, v);
}
