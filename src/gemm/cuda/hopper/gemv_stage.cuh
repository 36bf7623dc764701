// gemv_stage.cuh - the stages of gemv_pipeline.cu: where the planes of a stage's rows lie, and the copies
// that fill it.
#pragma once
#include "gemm/cuda/gemv_pipeline.h"
#include "gemm/cuda/pipeline.cuh"
#include "gemm/cuda/row_int8.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900 // bulk copies

static constexpr __device__ u32 consumers_of(bool alone)
{
    return alone ? CONSUMER_THREADS : BESIDE_THREADS;
}

template <bool ALONE> static __device__ __forceinline__ u32 pairs_of_a_stage(const struct gemm_params &p)
{
    return p.pipeline.rounds * consumers_of(ALONE) >> p.pipeline.lanes_log2;
}

// Keeps a number in a register: else the assembler finds it anew behind the wait, where it delays all. It
// cannot see through a shuffle. All lanes of a warp come.
static __device__ __forceinline__ u32 settled(u32 v)
{
    return __shfl_xor_sync(~0u, v, 0);
}
static __device__ __forceinline__ u8 *settled_shared(void *at)
{
    return (u8 *)__cvta_shared_to_generic(settled((u32)__cvta_generic_to_shared(at)));
}
static __device__ __forceinline__ const f32 *settled_global(const f32 *at)
{
    u64 there = (u64)__cvta_generic_to_global(at);
    there = (u64)settled((u32)(there >> 32)) << 32 | settled((u32)there);
    return (const f32 *)__cvta_global_to_generic(there);
}

struct plane_offsets { // of a row, in a stage
    u32 quants, high, scales, deltas;

    __device__ __forceinline__ struct plane_pointers in(const u8 *stage) const
    {
        return { stage + quants, stage + high, stage + scales, stage + deltas };
    }
    template <u32 F> __device__ __forceinline__ void settle() // the ones that the format has
    {
        quants = settled(quants);
        high = layout_high_bytes(F, 256) ? settled(high) : high;
        scales = layout_scales_bytes(F, 256) ? settled(scales) : scales;
        deltas = layout_deltas_bytes(F, 256) ? settled(deltas) : deltas;
    }
};

// Offsets of the planes in a stage: plane by plane, row by row.
template <u32 F, bool ALONE> struct stage_places {
    u32 quants, high, scales, deltas;

    __device__ __forceinline__ stage_places(const struct gemm_params &p)
    {
        u32 n_rows = 2 * pairs_of_a_stage<ALONE>(p);
        quants = 0;
        high = quants + stage_part_bytes(n_rows, layout_quants_bytes(F, p.n_cols));
        scales = high + stage_part_bytes(n_rows, layout_high_bytes(F, p.n_cols));
        deltas = scales + stage_part_bytes(n_rows, layout_scales_bytes(F, p.n_cols));
    }
    __device__ __forceinline__ struct plane_offsets row(u32 n_cols, u32 index) const
    {
        return { quants + index * (u32)layout_quants_bytes(F, n_cols),
                 high + index * (u32)layout_high_bytes(F, n_cols),
                 scales + index * (u32)layout_scales_bytes(F, n_cols),
                 deltas + index * (u32)layout_deltas_bytes(F, n_cols) };
    }
};

struct copy {               // of a run of rows; a lane's part
    u32 row, index, n_rows; // row: of the matrix; index: in the stage; n_rows: of the run that begins here,
                            // or 0
    u32 full;
    bool exists;
};

// Copies whole words with the run's first row; other rows four bytes at a time, one row a lane.
static __device__ __forceinline__ void copy_part(const struct copy &c, u32 to, const u8 *plane, u32 bytes)
{
    const u8 *from = plane + (u64)c.row * bytes;

    to += c.index * bytes;
    if (bytes % 16 != 0) {
#pragma unroll 1
        for (u32 i = 0; i < bytes && c.exists; i += 4)
            copy_word(to + i, from + i);
    } else if (bytes > 0 && c.n_rows > 0) {
        copy_run(to, from, bytes * c.n_rows, c.full);
    }
}

static __device__ __forceinline__ u32 bytes_in_words(u64 row_bytes)
{
    return row_bytes % 16 == 0 ? (u32)row_bytes : 0;
}

// Called by the whole warp: requests the pairs [first, end) of a stage, as many as fit. Each lane handles a
// row; rows that are neighbours in their matrix too are one copy.
template <u32 F, bool ALONE>
static __device__ __forceinline__ void produce_gemv_stage(const struct gemm_params &p, u32 first, u32 end,
                                                          u32 slot, u32 full)
{
    u32 lane = threadIdx.x & 31, each = pairs_of_a_stage<ALONE>(p), n = min(end - first, each);
    u32 index = p.pipeline.apart ? lane & (each - 1) : lane / 2,
        second = p.pipeline.apart ? lane >= each : lane & 1;
    bool exists = lane < 2 * each && index < n;
    struct pair r = pair_find(p, first + min(index, n - 1), p.mode);
    u32 matrix = second ? r.matrix[1] : r.matrix[0], row = second ? r.row[1] : r.row[0];
    // there are fewer than 2^30 rows
    u32 name = exists ? row + (matrix << 30) : ~0u, before = __shfl_up_sync(~0u, name, 1);
    u32 starts = __ballot_sync(~0u, !exists || lane == 0 || name != before + 1);
    u32 next = lane == 31 ? 0 : starts >> (lane + 1);
    struct copy c = { row, lane, 0, full, exists };
    if (exists && (starts >> lane & 1))
        c.n_rows = next ? __ffs(next) : 32 - lane;

    u32 bytes =
        bytes_in_words(layout_quants_bytes(F, p.n_cols)) + bytes_in_words(layout_high_bytes(F, p.n_cols)) +
        bytes_in_words(layout_scales_bytes(F, p.n_cols)) + bytes_in_words(layout_deltas_bytes(F, p.n_cols));
    if (lane == 0)
        expect_bytes(full, 2 * n * bytes);
    __syncwarp();
    struct stage_places<F, ALONE> at(p);
    const struct weight_planes &w = p.w[matrix];
    copy_part(c, slot + at.quants, w.quants, (u32)layout_quants_bytes(F, p.n_cols));
    copy_part(c, slot + at.high, w.high, (u32)layout_high_bytes(F, p.n_cols));
    copy_part(c, slot + at.scales, w.scales, (u32)layout_scales_bytes(F, p.n_cols));
    copy_part(c, slot + at.deltas, w.deltas, (u32)layout_deltas_bytes(F, p.n_cols));
    if (p.pipeline.words)
        arrive_with_words(full);
}

// Rows longer than a stage: part `at % LONG_PARTS` of both rows of pair at / LONG_PARTS.
template <u32 F>
static __device__ __forceinline__ void produce_part(const struct gemm_params &p, u32 at, u32 slot, u32 full)
{
    struct pair r = pair_find(p, at / LONG_PARTS, p.mode);
    u32 lane = threadIdx.x & 31, n = p.n_cols / 8, each = long_part_eights(p.n_cols),
        first = at % LONG_PARTS * each;
    u32 bytes = min(each, n - first) * 16;
    const struct weight_planes &w = p.w[lane ? r.matrix[1] : r.matrix[0]];

    if (lane == 0)
        expect_bytes(full, 2 * bytes);
    __syncwarp();
    if (lane < 2)
        copy_run(slot + lane * each * 16, w.quants + ((u64)(lane ? r.row[1] : r.row[0]) * n + first) * 16,
                 bytes, full);
}
template <u32 F, bool ALONE, u32 PARTS>
static __device__ __forceinline__ void produce_stage(const struct gemm_params &p, u32 first, u32 end,
                                                     u32 slot, u32 full)
{
    if (PARTS > 1)
        produce_part<F>(p, first, slot, full);
    else
        produce_gemv_stage<F, ALONE>(p, first, end, slot, full);
}
#endif
