// stream_k.cuh - gemm_hopper's tile scheduler (stream-K; Osama et al., 2023): the assignment of tiles to
// blocks, and the reduction of a split tile's partial sums in memory that is zero before.
#pragma once
#include "gemm/cuda/gemm_params.h"
#include "gemm/cuda/wgmma.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

// MOST_SHARERS: blocks that split a tile.
enum { STEP_COLUMNS = 128, LEAST_STEPS = 4, LEAST_SHARED = 16, MOST_SHARERS = 16 };

struct stream_unit { // a part of a tile: steps begin .. end - 1
    u32 tile, begin, end;
};

// The tile schedule, in shared memory, since it is seldom read. First whole tiles, in waves over all blocks;
// neighbours have the same weights, which are then read from memory once, or the same rows (gemm_rows_first).
// Then a block's part of the remaining tiles, whose steps are divided evenly; the blocks that share a tile
// add up their sums. With few rows, where no whole number of blocks can share a tile, the last wave is
// divided together with them: then at most two blocks share a tile, and the block that finishes it computes
// it last, the other one first. The assignment depends on the number of rows and blocks alone, and so do the
// sums.
struct tile_scheduler {
    u32 n_rows, n_row_tiles, n_steps;
    u32 n_pair_tiles;       // 0: neighbours have the same weights
    u32 whole;              // tiles that are not split
    u32 n_units, n_sharers; // steps of the others, and the blocks that share them
    u32 alike;              // each of those blocks has one part

    __device__ __forceinline__ u32 first_unit(u32 block) const
    {
        return block < n_sharers ? block * n_units / n_sharers : n_units;
    }
    __device__ __forceinline__ u32 block_of(u32 at) const
    {
        return ((at + 1) * n_sharers - 1) / n_units;
    }
    template <class K> __device__ __forceinline__ u32 first_pair(const struct stream_unit &s) const
    {
        return (n_pair_tiles ? s.tile % n_pair_tiles : s.tile / n_row_tiles) * K::pairs;
    }
    template <class K> __device__ __forceinline__ u32 first_row(const struct stream_unit &s) const
    {
        return (n_pair_tiles ? s.tile / n_pair_tiles : s.tile % n_row_tiles) * K::ROWS;
    }
    // A block's first part, and the one after a part. false: there is none.
    __device__ __forceinline__ bool first(struct stream_unit &s) const
    {
        return whole_tile(blockIdx.x, s);
    }
    __device__ __forceinline__ bool next(struct stream_unit &s) const
    {
        return s.tile < whole ? whole_tile(s.tile + gridDim.x, s)
                              : steps_from((s.tile - whole) * n_steps + s.end, s);
    }
    __device__ __forceinline__ bool whole_tile(u32 tile, struct stream_unit &s) const
    {
        if (tile >= whole)
            return steps_from(first_unit(blockIdx.x), s);
        s = { tile, 0, n_steps };
        return true;
    }
    __device__ __forceinline__ bool steps_from(u32 unit, struct stream_unit &s) const
    {
        u32 end = first_unit(blockIdx.x + 1), begin = unit % n_steps;
        if (unit >= end)
            return false;
        s = { whole + unit / n_steps, begin, min(n_steps, begin + end - unit) };
        return true;
    }
};

// As many blocks per tile as there are, if that leaves few idle; else all blocks, whose parts then begin
// anywhere. Where a tile has few steps, adding up costs more than computing them.
static __device__ __forceinline__ u32 sharers(u32 rest, u32 n_steps, u32 full)
{
    if (n_steps < LEAST_SHARED)
        return rest;
    u32 each = min(min(gridDim.x / rest, n_steps / LEAST_STEPS), (u32)MOST_SHARERS), n = each * rest;
    bool idle = n * 100 < gridDim.x * full, short_of_steps = each < gridDim.x / rest;

    return idle && !short_of_steps ? gridDim.x : max(rest, n);
}

template <class K>
static __device__ __forceinline__ struct tile_scheduler tile_scheduler_of(const struct gemm_params &p)
{
    struct tile_scheduler w;

    w.n_rows = n_rows_of(p.step, p.rows);
    w.n_row_tiles = (w.n_rows + K::ROWS - 1) / K::ROWS;
    w.n_steps = p.packed_cols / STEP_COLUMNS;
    u32 n_pair_tiles = (p.n_pairs + K::pairs - 1) / K::pairs, n_tiles = w.n_row_tiles * n_pair_tiles,
        rest = n_tiles % gridDim.x;
    w.n_pair_tiles = gemm_rows_first(w.n_rows, 2 * p.n_pairs, p.packed_cols) ? n_pair_tiles : 0;
    if (rest * 16 >= gridDim.x * 15)
        rest = 0;
    w.n_sharers = rest ? sharers(rest, w.n_steps, K::full) : 1;
    w.alike = rest && w.n_sharers % rest == 0;
    if (K::FEW && rest && !w.alike && n_tiles > gridDim.x)
        rest += gridDim.x;
    w.whole = n_tiles - rest;
    w.n_units = rest * w.n_steps;
    return w;
}

// Partial sums that other blocks wait for go to memory that is zero before. A sum of zero is stored as -0,
// whose bits are not zero: each word itself says that it is there, without a flag behind the sums.
static __device__ __forceinline__ f32 no_zero(f32 v)
{
    return v == 0 ? -0.0f : v;
}
static __device__ __forceinline__ bool is_there(float4 v)
{
    return __float_as_uint(v.x) && __float_as_uint(v.y) && __float_as_uint(v.z) && __float_as_uint(v.w);
}
static __device__ __forceinline__ float4 load_sums(const float4 *at)
{
    float4 v;
    asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(at)
                 : "memory");
    return v;
}

// Eights of rows of which a tile's sums are finished at a time.
static constexpr __device__ u32 epilogue_window(u32 rows)
{
    return rows >= 128 ? 8 : rows >= 32 ? 4 : rows / 8;
}

// The blocks that share a tile. Each finishes a part of its rows where it has no other part of a tile; else
// the first block finishes all. They wait for each other, which ends only because all run at once:
// plan_wgmma.c launches at most one block per SM.
template <class K> struct reduction {
    static constexpr u32 eights = K::ROWS / 8;
    u32 first, n, me; // blocks first .. first + n - 1
    bool alike;

    __device__ __forceinline__ reduction(const struct tile_scheduler &w, const struct stream_unit &s)
    {
        u32 unit = (s.tile - w.whole) * w.n_steps;

        alike = w.alike;
        first = n = me = 0;
        if (s.end - s.begin == w.n_steps)
            return;
        first = w.block_of(unit);
        n = w.block_of(unit + w.n_steps - 1) - first + 1;
        me = blockIdx.x - first;
    }
    __device__ __forceinline__ u32 begin(u32 block) const // of the eights of rows that a block finishes
    {
        return alike ? (block * eights + n - 1) / n : block ? eights : 0;
    }
    __device__ __forceinline__ u32 group(u32 block, u32 warpgroup) const
    {
        return (first + block) * K::GROUPS + warpgroup;
    }
    __device__ __forceinline__ float4 *partial(const struct gemm_params &p, u32 from, u32 warpgroup) const
    {
        return (float4 *)p.partial + (u64)group(from, warpgroup) * eights * 128 + threadIdx.x % 128;
    }

    __device__ __forceinline__ void store_partial(const struct gemm_params &p, u32 warpgroup,
                                                  const f32 (&d)[eights][4]) const
    {
        float4 *to = partial(p, me, warpgroup);
        u32 from = begin(me), end = begin(me + 1);
#pragma unroll
        for (u32 i = 0; i < eights; i++)
            if (i < from || i >= end)
                __stcg(to + i * 128,
                       make_float4(no_zero(d[i][0]), no_zero(d[i][1]), no_zero(d[i][2]), no_zero(d[i][3])));
    }
    // Adds the other blocks' sums of the window of eights from `at` on, which are the first of d by then.
    __device__ __forceinline__ void take_over(const struct gemm_params &p, u32 warpgroup, f32 (&d)[eights][4],
                                              u32 at) const
    {
        constexpr u32 window = epilogue_window(K::ROWS);
        u32 from = begin(me), end = begin(me + 1);

        for (u32 block = 0; block < n; block++) {
            float4 *v = partial(p, block, warpgroup) + at * 128, more[window];
            if (block == me)
                continue;
#pragma unroll
            for (u32 i = 0; i < window; i++)
                if (at + i >= from && at + i < end)
                    more[i] = load_sums(v + i * 128);
#pragma unroll
            for (u32 i = 0; i < window; i++)
                if (at + i >= from && at + i < end)
                    add(d[i], v + i * 128, more[i]);
        }
    }
    // Waits until all four are there, and zeroes them for the next launch.
    static __device__ __forceinline__ void add(f32 (&d)[4], float4 *at, float4 more)
    {
        while (!is_there(more))
            more = load_sums(at);
        __stcg(at, make_float4(0, 0, 0, 0));
        d[0] += more.x;
        d[1] += more.y;
        d[2] += more.z;
        d[3] += more.w;
    }
};
#endif
