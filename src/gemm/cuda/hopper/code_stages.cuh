// code_stages.cuh - quantised weights of gemm_hopper in stages of shared memory: 128 columns of a tile's
// weight rows, as they lie in their planes (weight_layout.h).
//
// A stage holds the rows in the order of the fragments: of each warp eight first rows of pairs, then eight
// second ones. Four producer warps copy them 4 to 16 bytes a lane, since a row's part of a plane is short; a
// lane of a consumer warp reads its blocks of two rows without bank conflicts.
#pragma once
#include "gemm/cuda/hopper/hopper.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

// The planes of N rows and 128 columns, one after the other.
template <u32 F, u32 N> struct code_planes {
    static constexpr u32 quants = layout_quants_bytes(F, 128), high = layout_high_bytes(F, 128),
                         scales = layout_part_scales_bytes(F), deltas = layout_has_super_blocks(F) ? 4 : 0;
    static constexpr u32 high_at = N * quants, scales_at = high_at + N * high,
                         deltas_at = scales_at + N * scales;
    static_assert(deltas_at + N * deltas == N * layout_part_bytes(F), "plan_wgmma.c takes room for them");
};

static __device__ __forceinline__ void copy_quants(u32 to, const u8 *from, bool exists, u64 policy)
{
    asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(to),
                 "l"(from), "r"(exists ? 16 : 0), "l"(policy)
                 : "memory");
}
template <u32 BYTES> static __device__ __forceinline__ void copy_part(u32 to, const u8 *from, bool exists)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(BYTES),
                 "r"(exists ? BYTES : 0)
                 : "memory");
}
// A row's part of a plane of scales or bits, in words of four bytes where the plane's rows are no multiple of
// it.
template <u32 BYTES>
static __device__ __forceinline__ void copy_row(u32 to, const u8 *from, u32 exist, bool words)
{
    constexpr u32 piece = BYTES < 16 ? BYTES : 16;
    if (!words) {
#pragma unroll
        for (u32 i = 0; i < BYTES; i += piece)
            copy_part<piece>(to + i, from + i, true);
        return;
    }
#pragma unroll
    for (u32 i = 0; i < BYTES; i += 4)
        copy_part<4>(to + i, from + i, i < exist);
}

// The rows of a tile that a producer thread copies: quants of `n`, the other planes of `n_small`.
template <class K> struct code_source {
    static constexpr u32 F = K::F, ROWS = K::GROUPS * 64;
    typedef struct code_planes<F, ROWS> planes;
    static constexpr u32 lanes = planes::quants / 16 < 4 ? planes::quants / 16 : 4, // that share a row
        pieces = planes::quants / 16 / lanes, step = 128 / lanes, n = (ROWS + step - 1) / step,
                         n_small = (ROWS + 127) / 128;
    struct stream_unit unit;
    const u8 *quants[n], *high[n_small], *scales[n_small], *deltas[n_small];
    bool left;

    static __device__ __forceinline__ u32 thread()
    {
        return threadIdx.x % 128;
    }

    __device__ __forceinline__ void find(const struct gemm_params &p, u32 first, u32 at, u32 &matrix,
                                         u32 &row) const
    {
        u32 own = first + at / 16 * 8 + at % 8;
        struct pair r = pair_find(p, p.first_pair + min(own, p.n_pairs - 1), p.mode);
        matrix = at / 8 % 2 ? r.matrix[1] : r.matrix[0];
        row = at / 8 % 2 ? r.row[1] : r.row[0];
    }
    __device__ __forceinline__ void first(const struct gemm_params &p, const struct tile_scheduler &w)
    {
        left = w.first(unit);
        begin(p, w);
    }
    __device__ __forceinline__ void begin(const struct gemm_params &p, const struct tile_scheduler &w)
    {
        u32 first, matrix, row, n_cols = p.n_cols;
        if (!left)
            return;
        first = w.first_pair<K>(unit);
#pragma unroll
        for (u32 i = 0; i < n; i++) {
            find(p, first, thread() / lanes + i * step, matrix, row);
            quants[i] = p.w[matrix].quants + row * layout_quants_bytes(F, n_cols) +
                        unit.begin * planes::quants + thread() % lanes * 16;
        }
#pragma unroll
        for (u32 i = 0; i < n_small; i++) {
            find(p, first, thread() + i * 128, matrix, row);
            const struct weight_planes &m = p.w[matrix];
            if (planes::high)
                high[i] = m.high + row * layout_high_bytes(F, n_cols) + unit.begin * planes::high;
            if (planes::scales)
                scales[i] = m.scales + row * layout_scales_bytes(F, n_cols) + unit.begin * planes::scales;
            if (planes::deltas)
                deltas[i] = m.deltas + row * layout_deltas_bytes(F, n_cols);
        }
    }
    // Copies a step's weights into the stage, and has `full` told.
    __device__ __forceinline__ void copy(const struct gemm_params &p, u32 to, u32 full, u64 policy)
    {
        u32 blocks = p.n_cols / 32 - unit.begin * 4;
        bool words = p.n_cols % 128 != 0;
#pragma unroll
        for (u32 i = 0; i < n; i++) {
            u32 row = thread() / lanes + i * step, part = thread() % lanes;
            if (ROWS % step != 0 && row >= ROWS)
                continue;
#pragma unroll
            for (u32 k = 0; k < pieces; k++)
                copy_quants(to + row * planes::quants + (part + k * lanes) * 16, quants[i] + k * lanes * 16,
                            (part + k * lanes) * 64 < blocks * (planes::quants), policy);
            quants[i] += planes::quants;
        }
#pragma unroll
        for (u32 i = 0; i < n_small; i++) {
            u32 row = thread() + i * 128;
            if (ROWS % 128 != 0 && row >= ROWS)
                continue;
            if constexpr (planes::high != 0) {
                copy_row<planes::high>(to + planes::high_at + row * planes::high, high[i],
                                       blocks * planes::high / 4, words);
                high[i] += planes::high;
            }
            if constexpr (planes::scales != 0) {
                copy_row<planes::scales>(to + planes::scales_at + row * planes::scales, scales[i],
                                         blocks * planes::scales / 4, words);
                scales[i] += planes::scales;
            }
            if constexpr (planes::deltas != 0)
                copy_part<4>(to + planes::deltas_at + row * 4, deltas[i] + unit.begin / 2 * 4, true);
        }
        arrive_with_words(full);
    }
    __device__ __forceinline__ void next(const struct gemm_params &p, const struct tile_scheduler &w)
    {
        if (++unit.begin < unit.end)
            return;
        left = w.next(unit);
        begin(p, w);
    }
};

// Where a lane finds its blocks of two rows in a stage.
template <class K> struct code_place {
    static constexpr u32 F = K::F;
    typedef struct code_planes<F, K::GROUPS * 64> planes;
    u32 block; // of the first row in the stage

    __device__ __forceinline__ code_place()
    {
        block = threadIdx.x / 32 * 64 + threadIdx.x % 32;
        asm volatile("" : "+r"(block)); // else it is computed at each step
    }
    __device__ __forceinline__ void load(const u8 *stage, struct prepared<F> (&to)[2]) const
    {
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            u32 at = block + 32 * i;
            struct strip<F> strip;
            if constexpr (F == QUANT_BF16 || F == QUANT_F16) {
#pragma unroll
                for (u32 k = 0; k < 4; k++)
                    strip.q[k] = ((const uint4 *)stage)[at * 4 + k];
            } else { // a row has one delta, which block_at counts by blocks
                struct plane_pointers p = { stage, stage + planes::high_at, stage + planes::scales_at,
                                            stage + planes::deltas_at + (at / 4 - at / 8) * 4 };
                strip.block = block_at<F, false>(p, at);
            }
            strip_prepare<F>(to[i], strip);
        }
    }
};
#endif
