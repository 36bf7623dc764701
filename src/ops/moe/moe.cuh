// moe.cuh - what moe_row and the kernels for few rows share: the choice of a row's experts, and rows of
// weights in shared memory.
#pragma once
#include "gemm/cuda/activation.cuh"
#include "gemm/cuda/pipeline.cuh"
#include "gemm/cuda/row_int8.cuh"
#include "ops/experts/experts_gated.cuh"
#include "ops/moe/moe_cuda.h"
#include "ops/route/route.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900 // bulk copies

#define NOT_A_NUMBER __int_as_float(0x7fffffff)

// --- what a block has ---

struct span {
    u32 first, n;
};

static __device__ __forceinline__ struct span span_of(u32 each, u32 more, u32 block)
{
    return { each * block + min(block, more), each + (block < more) };
}
static __device__ __forceinline__ struct span groups_of(u32 each, u32 more)
{
    struct span groups = span_of(each, more, blockIdx.x);
    return { groups.first * MOE_GROUP, groups.n * MOE_GROUP };
}

// --- the choice ---

// Lane j: the weight of slot j, whose expert has this logit. top, sum: of a softmax over all logits.
static __device__ __forceinline__ f32 slot_weight(const struct moe_params &p, u32 id, f32 logit, f32 top,
                                                  f32 sum)
{
    u32 lane = threadIdx.x & 31, n = p.route.n_slots, scores = p.route.rule.scores;
    f32 scale = p.expert_scale && lane < n ? p.expert_scale[id] : 1,
        score = scores == ROUTE_SOFTMAX   ? expf(logit - top) / sum
                : scores == ROUTE_SIGMOID ? sigmoid(logit)
                                          : logit;
    return route_weigh(p.route.rule, lane < n ? score : 0, n) * scale;
}
static __device__ __forceinline__ f32 shared_weight(const struct moe_params &p, const f32 *logits)
{
    return p.shared_gate ? sigmoid(logits[p.route.n_experts]) : 1;
}

// --- weights ---

// Row i of some whose planes lie behind each other.
static __device__ __forceinline__ struct plane_pointers row_of(const struct moe_rows &r, const u8 *at, u32 i)
{
    return { at + i * r.row[0], at + r.plane[1] + i * r.row[1], at + r.plane[2] + i * r.row[2],
             at + r.plane[3] + i * r.row[3] };
}
template <u32 F> static constexpr __device__ bool has_plane(u32 plane)
{
    return plane == 1 ? layout_high_bytes(F, 256) > 0 : plane == 3 ? layout_has_super_blocks(F) : true;
}
// One lane: rows [first, first + n) of a matrix to rows `to` and on of those at `at`; one plane.
static __device__ __forceinline__ void copy_plane(const struct moe_rows &r, const u8 *plane, u32 i, u32 first,
                                                  u32 n, u32 at, u32 to, u32 full)
{
    copy_run(at + r.plane[i] + to * r.row[i], plane + (u64)first * r.row[i], n * r.row[i], full);
}
// The planes behind the quants.
template <u32 F>
static __device__ __forceinline__ void copy_rest(const struct moe_rows &r, const struct weight_planes &w,
                                                 u32 first, u32 n, u32 at, u32 to, u32 full)
{
    if (has_plane<F>(1))
        copy_plane(r, w.high, 1, first, n, at, to, full);
    copy_plane(r, w.scales, 2, first, n, at, to, full);
    if (has_plane<F>(3))
        copy_plane(r, w.deltas, 3, first, n, at, to, full);
}

// Both sums over a warp; lane 0 has the first, lane 16 the second.
static __device__ __forceinline__ f32 sum_both(f32 first, f32 second)
{
    bool upper = threadIdx.x & 16;
    f32 mine = (upper ? second : first) + __shfl_xor_sync(~0u, upper ? first : second, 16);
#pragma unroll
    for (u32 o = 8; o; o >>= 1)
        mine += __shfl_xor_sync(~0u, mine, o);
    return mine;
}

#endif
