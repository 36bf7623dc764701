// latent_queries.cuh - the queries of a block of latent_attend.cu or latent_hopper.cu, and what of the past
// they see.
#pragma once
#include "device/cuda/pages.cuh"
#include "ops/latent/latent_cuda.h"

enum { NOT_SEEN = 0x7fffffff }; // the position of a query that is not there
#define INFINITY_F32 __int_as_float(0x7f800000)
#define LOG2_E       1.44269504f

struct query_run { // queries [first, end) of the tile, of one sequence; positions of the first row; keys
                   // [from, to)
    u32 first, end, slot, position, from, to, split;
};

static __device__ __forceinline__ f32 exp2_of(f32 x)
{
    f32 y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
template <bool BF16> static __device__ __forceinline__ u32 two_numbers(f32 low, f32 high)
{
    __nv_bfloat162 b = __floats2bfloat162_rn(low, high);
    __half2 h = __floats2half2_rn(low, high);
    return BF16 ? *(u32 *)&b : *(u32 *)&h;
}

// The exponent of a power of two that is not above a positive number.
static __device__ __forceinline__ u32 power_below(f32 x)
{
    return min(max(__float_as_uint(x) >> 23, 1u), 253u);
}

// Of the tile. The last rows come first: they see most keys.
static __device__ __forceinline__ u32 first_row(const struct latent_attend_params &p)
{
    return (gridDim.z - 1 - blockIdx.z) * p.tile_rows;
}

// Query i of the tile: its row in the step, and its head. What is not there has the row NOT_SEEN.
static __device__ __forceinline__ u32 query_row(const struct latent_attend_params &p, u32 i)
{
    u32 row = first_row(p) + i / p.tile_heads, head = blockIdx.y * p.tile_heads + i % p.tile_heads;
    return i < p.tile_rows * p.tile_heads && row < p.step->n_rows && head < p.args.n_heads ? row : NOT_SEEN;
}
static __device__ __forceinline__ u32 query_head(const struct latent_attend_params &p, u32 i)
{
    return blockIdx.y * p.tile_heads + i % p.tile_heads;
}

// Pages of a split of n keys.
static __device__ __forceinline__ u32 split_pages(const struct latent_attend_params &p, u32 n)
{
    return ((n + PAGE_TOKENS - 1) / PAGE_TOKENS + p.n_splits - 1) / p.n_splits;
}

// The run that begins at query `first` of the tile, and this block's share of its keys.
static __device__ __forceinline__ struct query_run run_at(const struct latent_attend_params &p, u32 first)
{
    u32 row = query_row(p, first), n_rows = 1, tile_end = min(first_row(p) + p.tile_rows, p.step->n_rows);
    struct query_run r = { first, 0, step_slots(p.step)[row], step_positions(p.step)[row], 0, 0, blockIdx.x };

    while (row + n_rows < tile_end && step_slots(p.step)[row + n_rows] == r.slot)
        n_rows++;
    r.end = first + n_rows * p.tile_heads;
    u32 last = step_positions(p.step)[row + n_rows - 1] + 1, share = split_pages(p, last) * PAGE_TOKENS;
    r.from = min(blockIdx.x * share, last);
    r.to = min(r.from + share, last);
    return r;
}
