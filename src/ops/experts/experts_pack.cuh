// experts_pack.cuh - rows of activations as int8, for the kernel that packs them and for blocks that do so
// themselves.
#pragma once
#include "gemm/cuda/row_int8.cuh"
#include "ops/experts/experts.cuh"

// Row i of those to pack; none beyond the last.
static __device__ __forceinline__ const f32 *experts_row_to_pack(const struct experts_params &p, u32 i)
{
    u32 of_a_row = p.slot_stride ? p.n_slots : 1;
    return i < p.step->n_rows * of_a_row
               ? p.in + (u64)(i / of_a_row) * p.in_stride + i % of_a_row * p.slot_stride
               : nullptr;
}

static __device__ __forceinline__ float4 experts_four(const f32 *from)
{
    return (u64)from % 16 == 0 ? *(const float4 *)from : make_float4(from[0], from[1], from[2], from[3]);
}

// Row i to its place behind `packed`, by all threads of a block.
static __device__ __forceinline__ void experts_quantise(const struct experts_params &p, u32 row, u8 *packed)
{
    const f32 *from = experts_row_to_pack(p, row);
    struct row_int8 x = row_int8_at(packed + (u64)row * p.packed_stride, p.n_cols / 32);
    u32 n = p.n_cols / 8, end = (n + 31) / 32 * 32;

    for (u32 i = threadIdx.x; from && i < end; i += blockDim.x) {
        const f32 *at = from + min(i, n - 1) * 8;
        float4 a = experts_four(at), b = experts_four(at + 4);
        const f32 v[8] = { a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w };
        quantise_eight(x, i, v, i < n);
    }
}
