// block_rows.cuh - a block's rows of a matrix: their range, bulk copies to shared memory, pointers to one of
// them there.
#pragma once
#include "gemm/cuda/block_rows.h"
#include "gemm/cuda/pipeline.cuh"
#include "gemm/cuda/row_int8.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900 // bulk copies

struct rows_span {
    u32 first, n;
};
static __device__ __forceinline__ struct rows_span rows_of_block(const struct block_rows &r, u32 block)
{
    return { (r.each * block + min(block, r.more)) * BLOCK_ROWS_GROUP,
             (r.each + (block < r.more)) * BLOCK_ROWS_GROUP };
}

template <u32 F> static constexpr __device__ bool has_plane(u32 plane)
{
    return plane == 1 ? layout_high_bytes(F, 256) > 0 : plane == 3 ? layout_has_super_blocks(F) : true;
}

// One thread copies rows [from, from + n) of the matrix, n > 0, to rows [to, to + n) of the block's at
// `shared`.
template <u32 F>
static __device__ __forceinline__ void copy_rows(const struct block_rows &r, const struct weight_planes &w,
                                                 u32 from, u32 n, u32 to, u32 shared, u32 full)
{
    const u8 *const planes[4] = { w.quants, w.high, w.scales, w.deltas };

#pragma unroll
    for (u32 i = 0; i < 4; i++)
        if (has_plane<F>(i))
            copy_run(shared + r.plane[i] + to * r.row[i], planes[i] + (u64)from * r.row[i], n * r.row[i],
                     full);
}

// Row i of those at `at`.
static __device__ __forceinline__ struct plane_pointers row_of(const struct block_rows &r, const u8 *at,
                                                               u32 i)
{
    return { at + i * r.row[0], at + r.plane[1] + i * r.row[1], at + r.plane[2] + i * r.row[2],
             at + r.plane[3] + i * r.row[3] };
}
#endif
