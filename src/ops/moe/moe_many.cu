// moe_many.cu - the kernels around the experts' products of many rows; moe_many.h has the regions.
//
//   moe_sort  a block per expert: lists the expert's entries in order, each expert's from a multiple of 8 on
//   moe_pack  a block per 8 rows of all lists: normed rows as bf16 fragments, once for each entry
//   moe_sum   a thread per 8 columns of a row: slots in order, the shared expert, the residual
//
// No pipelines and no tiles: bound by memory.
#include "gemm/cuda/fragments.cuh"
#include "ops/experts/sum_before.cuh"
#include "ops/moe/moe_many.h"

// Block e lists the entries of expert e, in order, in its region, and says where that lies and how long it
// is. No block waits for another: each counts the entries of the experts before its own. A region of n
// entries ends before the next begins, since (x + n + 7) / 8 * 8 >= x / 8 * 8 + (n + 7) / 8 * 8.
extern "C" __global__ void __launch_bounds__(MOE_SORT_THREADS)
    moe_sort(const __grid_constant__ struct moe_many_params p)
{
    extern __shared__ __align__(16) unsigned char ids[]; // of all entries
    __shared__ u32 room[MOE_SORT_THREADS / 32];
    u32 n = p.step->n_rows * p.n_slots, share = (n + MOE_SORT_THREADS - 1) / MOE_SORT_THREADS;
    u32 begin = min(threadIdx.x * share, n), end = min(begin + share, n), expert = blockIdx.x, below = 0,
        equal = 0, before, count;

    wait_for_inputs();
#pragma unroll 8
    for (u32 i = threadIdx.x; i < n; i += MOE_SORT_THREADS)
        ids[i] = (u8)__ldcg(p.ids + i);
    __syncthreads();
    for (u32 i = begin; i < end; i++) {
        below += ids[i] < expert;
        equal += ids[i] == expert;
    }
    sum_before(below, room, &before);
    u32 at = sum_before(equal, room, &count), region = (before + 7 * expert) / 8 * 8;
    for (u32 i = begin; i < end; i++)
        if (ids[i] == expert)
            p.entries[region + at++] = i;
    for (u32 i = count + threadIdx.x; i < (count + 7) / 8 * 8; i += MOE_SORT_THREADS)
        p.entries[region + i] = ~0u;
    if (threadIdx.x == 0) {
        p.count[expert] = count;
        p.region[expert] = region;
    }
}

// A step's words of a row, 16 columns: as pack_mma's (pack_rows.cu). at: of lane 0's columns; n: lanes that
// have columns.
static __device__ __forceinline__ void step_words(const f32 *at, u32 n, uint4 (&to)[2])
{
    u32 low[4], high[4];
#pragma unroll
    for (u32 t = 0; t < 4; t++) {
        float4 v = t < n ? __ldcg((const float4 *)(at + t * 32)) : make_float4(0, 0, 0, 0);
        low[t] = two_bf16(v.x, v.z);
        high[t] = two_bf16(v.y, v.w);
    }
    to[0] = make_uint4(low[0], low[1], low[2], low[3]);
    to[1] = make_uint4(high[0], high[1], high[2], high[3]);
}

// Block i packs rows [8 i, 8 i + 8) of all regions: normed rows become bf16, once for each entry.
extern "C" __global__ void __launch_bounds__(MOE_PACK_THREADS)
    moe_pack(const __grid_constant__ struct moe_many_params p)
{
    u32 first = blockIdx.x * 8, low = 0, high = p.n_experts - 1;

    wait_for_inputs();
    while (low < high) { // the last region that begins here or before
        u32 middle = (low + high + 1) / 2;
        if (__ldcg(p.region + middle) <= first)
            low = middle;
        else
            high = middle - 1;
    }
    u32 region = __ldcg(p.region + low), rows = (__ldcg(p.count + low) + 7) / 8 * 8;
    if (first >= region + rows)
        return;
    u32 n_steps = moe_steps(p.n_cols) * 8, last = p.n_cols / 128;
    u8 *to = p.out + (u64)region * moe_packed_bytes(p.n_cols) + (first - region) * 128;
    for (u32 i = threadIdx.x; i < n_steps * 8; i += MOE_PACK_THREADS) {
        u32 row = i / n_steps, s = i % n_steps, entry = __ldcg(p.entries + first + row);
        if (entry == ~0u) // an empty row's results go nowhere
            continue;
        uint4 words[2];
        step_words((const f32 *)p.rows + (u64)(entry / p.n_slots) * p.n_cols + s / 8 * 128 + s % 2 * 16 +
                       s % 8 / 2 * 4,
                   s / 8 < last ? 4 : 2, words);
        uint4 *out = (uint4 *)(to + (u64)(s / 4) * rows * 128 + row * 128);
        out[s % 4 * 2 ^ row] = words[0];
        out[(s % 4 * 2 + 1) ^ row] = words[1];
    }
}

// out = add + the slots in their order and the shared expert. A thread takes eight columns of a row.
extern "C" __global__ void __launch_bounds__(MOE_SUM_THREADS)
    moe_sum(const __grid_constant__ struct moe_sum_params p)
{
    u32 row = blockIdx.y, column = (blockIdx.x * MOE_SUM_THREADS + threadIdx.x) * 8;
    f32 sum[8] = {};

    wait_for_inputs();
    if (row >= p.step->n_rows || column >= p.n_cols)
        return;
    const f32 *weights = p.weights + (u64)row * (p.n_slots + 1);
    const u8 *part = p.parts + ((u64)row * p.n_slots * p.n_cols + column) * 2;
#pragma unroll 4
    for (u32 j = 0; j < p.n_slots; j++) {
        uint4 v = __ldcg((const uint4 *)(part + (u64)j * p.n_cols * 2));
        f32 weight = __ldcg(weights + j);
        const u32 twos[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            sum[2 * i] += weight * __uint_as_float(twos[i] << 16);
            sum[2 * i + 1] += weight * __uint_as_float(twos[i] & 0xffff0000);
        }
    }
    u64 at = (u64)row * p.n_cols + column;
    if (p.shared) {
        f32 weight = __ldcg(weights + p.n_slots);
        float4 a = __ldcg((const float4 *)(p.shared + at)), b = __ldcg((const float4 *)(p.shared + at + 4));
        const f32 v[8] = { a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w };
#pragma unroll
        for (u32 i = 0; i < 8; i++)
            sum[i] += weight * v[i];
    }
    float4 a = {}, b = {};
    if (p.add) {
        a = *(const float4 *)(p.add + at);
        b = *(const float4 *)(p.add + at + 4);
    }
    *(float4 *)(p.out + at) = make_float4(a.x + sum[0], a.y + sum[1], a.z + sum[2], a.w + sum[3]);
    *(float4 *)(p.out + at + 4) = make_float4(b.x + sum[4], b.y + sum[5], b.z + sum[6], b.w + sum[7]);
}
