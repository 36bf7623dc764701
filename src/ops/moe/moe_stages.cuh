// moe_stages.cuh - what moe_hopper.cu multiplies, in stages of shared memory: 128 columns of an expert's rows
// and of its weights.
//
// Rows come as they lie packed, by bulk copies, weights as they lie in their planes, in the order of the
// fragments (code_stages.cuh), by four producer warps.
#pragma once
#include "gemm/cuda/hopper/code_stages.cuh"
#include "ops/moe/moe_many.h"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

enum {
    MOE_GROUPS = 2, // of consumers
    MOE_CONSUMERS = MOE_GROUPS * 128,
    MOE_PAIRS = MOE_GROUPS * 32, // of an item
    MOE_HALF = MOE_TILE_ROWS * 128
};
static_assert(HOPPER_MOE_THREADS == MOE_CONSUMERS + 128, "");

template <u32 FORMAT, bool IS_UP> struct moe_kernel {
    static constexpr u32 F = FORMAT, GROUPS = MOE_GROUPS, rows_bytes = 2 * MOE_HALF;
    static constexpr bool UP = IS_UP;
    static constexpr u32 bytes = rows_bytes + GROUPS * 64 * layout_part_bytes(F),
                         stage_bytes = (bytes + 1023) / 1024 * 1024, fit = MOE_ROOM / stage_bytes,
                         n_stages = fit < MOE_MOST_STAGES ? fit : MOE_MOST_STAGES;
};

struct tile { // of an expert's rows, in eights
    u32 expert, first, n;
};

struct hopper_state {
    u64 full[MOE_MOST_STAGES], empty[MOE_MOST_STAGES];
    u32 count[MOE_MANY_EXPERTS], region[MOE_MANY_EXPERTS]; // rows; where they begin
    u32 tiles[MOE_MOST_TILES];
    u32 n_tiles;
    alignas(8) u32 entries[MOE_GROUPS][2][MOE_TILE_ROWS]; // read by twos
};
static_assert(MOE_ROOM + sizeof(struct hopper_state) <= MOE_HOPPER_SHARED, "");

static __device__ __forceinline__ u32 eights(u32 n)
{
    return (n + 7) / 8;
}
static __device__ __forceinline__ u32 parts(u32 n) // of an expert's rows
{
    return (n + MOE_TILE_ROWS - 1) / MOE_TILE_ROWS;
}
static __device__ __forceinline__ u32 part_rows(u32 n)
{
    return n ? n / parts(n) : 0;
}

// The experts' parts, largest first: an expert's place is the number of larger ones.
static __device__ __forceinline__ void list_tiles(const struct moe_many_params &p, struct hopper_state &s)
{
    for (u32 e = threadIdx.x; e < p.n_experts; e += blockDim.x) {
        s.count[e] = __ldcg(p.count + e);
        s.region[e] = __ldcg(p.region + e);
    }
    __syncthreads();
    for (u32 e = threadIdx.x; e < p.n_experts; e += blockDim.x) {
        u32 n = parts(s.count[e]), all = eights(s.count[e]), mine = part_rows(s.count[e]), at = 0;
        for (u32 i = 0; i < p.n_experts; i++) {
            u32 other = part_rows(s.count[i]);
            at += other > mine || (other == mine && i < e) ? parts(s.count[i]) : 0;
        }
        for (u32 i = 0; i < n; i++) {
            u32 first = all * i / n, end = all * (i + 1) / n;
            s.tiles[at + i] = e | first << 8 | (end - first) << 24;
        }
        if (at + n > 0)
            atomicMax(&s.n_tiles, at + n);
    }
    __syncthreads();
}

static __device__ __forceinline__ struct tile tile_of(const struct hopper_state &s, u32 i)
{
    u32 v = s.tiles[i];
    return { v & 255, v >> 8 & 0xffff, v >> 24 };
}
static __device__ __forceinline__ u32 rows_of(const struct hopper_state &s, const struct tile &t)
{
    return min(s.count[t.expert] - t.first * 8, t.n * 8);
}

// What a block does in turn: item i is MOE_PAIRS pairs of tile i / n_pair_tiles.
struct items {
    u32 n_pair_tiles, n;

    __device__ __forceinline__ items(const struct moe_many_params &p, const struct hopper_state &s)
    {
        n_pair_tiles = (p.n_pairs + MOE_PAIRS - 1) / MOE_PAIRS;
        n = s.n_tiles * n_pair_tiles;
    }
    __device__ __forceinline__ u32 first_pair(u32 item) const
    {
        return item % n_pair_tiles * MOE_PAIRS;
    }
};

// The column of pair `at` of hidden rows: eight of a warp are a whole 16-byte word of a packed row, or, where
// the last 128 columns have only 64, halves of two.
static __device__ __forceinline__ u32 hidden_column(const struct moe_many_params &p, u32 pair)
{
    u32 group = pair / 128, k = pair % 128 / 8, quarter = pair % 8 / 2;
    bool half = group * 128 + 128 > p.n_out;
    u32 step = half ? k : k / 2, odd = half ? quarter / 2 : k % 2, block = half ? quarter % 2 : quarter;

    return group * 128 + block * 32 + step % 2 * 16 + step / 2 * 4 + odd + pair % 2 * 2;
}

// The weight rows of a stage that a producer thread copies: quants of `n`, the other planes of `n_small`.
template <class K> struct weights_source {
    static constexpr u32 F = K::F, ROWS = K::GROUPS * 64;
    typedef struct code_planes<F, ROWS> planes;
    static constexpr u32 lanes = planes::quants / 16 < 4 ? planes::quants / 16 : 4, // that share a row
        pieces = planes::quants / 16 / lanes, step = 128 / lanes, n = (ROWS + step - 1) / step,
                         n_small = (ROWS + 127) / 128;
    u32 quants[n], small[n_small]; // rows of the matrix

    static __device__ __forceinline__ u32 thread()
    {
        return threadIdx.x % 128;
    }
    static __device__ __forceinline__ u32 row_of(const struct moe_many_params &p, u32 expert, u32 first,
                                                 u32 at)
    {
        u32 pair = first + at / 16 * 8 + at % 8, row = K::UP ? hidden_column(p, pair) : 2 * pair + at / 8 % 2;
        return expert * p.n_out + min(row, p.n_out - 1);
    }
    __device__ __forceinline__ void begin(const struct moe_many_params &p, u32 expert, u32 first)
    {
#pragma unroll
        for (u32 i = 0; i < n; i++)
            quants[i] = row_of(p, expert, first, thread() / lanes + i * step);
#pragma unroll
        for (u32 i = 0; i < n_small; i++)
            small[i] = row_of(p, expert, first, thread() + i * 128);
    }
    // Step `s` of 128 columns.
    __device__ __forceinline__ void copy(const struct moe_many_params &p, u32 s, u32 to, u64 policy) const
    {
        u32 blocks = p.n_cols / 32 - s * 4;
        bool words = p.n_cols % 128 != 0;
#pragma unroll
        for (u32 i = 0; i < n; i++) {
            u32 row = thread() / lanes + i * step, part = thread() % lanes;
            const u8 *from = p.w[row / 8 % 2].quants + (u64)quants[i] * layout_quants_bytes(F, p.n_cols) +
                             s * planes::quants + part * 16;
#pragma unroll
            for (u32 k = 0; k < pieces; k++)
                copy_quants(to + row * planes::quants + (part + k * lanes) * 16, from + k * lanes * 16,
                            (part + k * lanes) * 64 < blocks * planes::quants, policy);
        }
#pragma unroll
        for (u32 i = 0; i < n_small; i++) {
            u32 row = thread() + i * 128;
            if (ROWS % 128 != 0 && row >= ROWS)
                continue;
            const struct weight_planes &m = p.w[row / 8 % 2];
            if constexpr (planes::high != 0)
                copy_row<planes::high>(to + planes::high_at + row * planes::high,
                                       m.high + (u64)small[i] * layout_high_bytes(F, p.n_cols) +
                                           s * planes::high,
                                       blocks * planes::high / 4, words);
            if constexpr (planes::scales != 0)
                copy_row<planes::scales>(to + planes::scales_at + row * planes::scales,
                                         m.scales + (u64)small[i] * layout_scales_bytes(F, p.n_cols) +
                                             s * planes::scales,
                                         blocks * planes::scales / 4, words);
            if constexpr (planes::deltas != 0)
                copy_part<4>(to + planes::deltas_at + row * 4,
                             m.deltas + (u64)small[i] * layout_deltas_bytes(F, p.n_cols) + s / 2 * 4, true);
        }
    }
};
#endif
