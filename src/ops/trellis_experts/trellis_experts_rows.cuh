// trellis_experts_rows.cuh - 128 numbers of a row between the products with experts' codes, a warp's.
#pragma once
#include "ops/experts/experts_gated.cuh"
#include "ops/trellis/trellis_decode.cuh"
#include "ops/trellis_experts/trellis_experts_cuda.h"

static __device__ __forceinline__ u32 expert_of(const struct trellis_experts_params &p, u32 entry)
{
    return (u32)p.ids[entry];
}

// Factors of an expert's matrix: suh, and behind it svh.
static __device__ __forceinline__ const u16 *factors_of(const struct trellis_experts_params &p, u32 stack,
                                                        u32 expert)
{
    u32 n_in = stack == TRELLIS_DOWN ? p.n_hidden : p.n_in,
        n_out = stack == TRELLIS_DOWN ? p.n_in : p.n_hidden;
    u64 codes = exl3_codes_bytes(n_in, n_out, p.bits[stack]);

    return (const u16 *)(p.stacks[stack] + expert * exl3_bytes(n_in, n_out, p.bits[stack]) + codes);
}

// Four outputs of a lane, summed over the splits, and transformed back.
static __device__ __forceinline__ void take_sums(const f32 *of_split, u32 n_splits, u64 stride, f32 (&v)[4])
{
#pragma unroll
    for (u32 i = 0; i < 4; i++)
        v[i] = 0;
#pragma unroll 4
    for (u32 s = 0; s < n_splits; s++, of_split += stride) {
        float4 four = __ldcg((const float4 *)of_split);
        v[0] += four.x;
        v[1] += four.y;
        v[2] += four.z;
        v[3] += four.w;
    }
    turn_128(v);
}

// 128 hidden numbers of an entry, by down's factors: what is transformed for down.
static __device__ __forceinline__ void take_hidden(const struct trellis_experts_params &p, u32 entry,
                                                   u32 block, f32 (&v)[4])
{
    u32 first = block * EXL3_BLOCK + (threadIdx.x & 31) * 4, expert = expert_of(p, entry);
    const u16 *gate_svh = factors_of(p, TRELLIS_GATE, expert) + p.n_in,
              *up_svh = factors_of(p, TRELLIS_UP, expert) + p.n_in,
              *suh = factors_of(p, TRELLIS_DOWN, expert);
    f32 up[4];

    const f32 *sums = p.partial + (u64)entry * 2 * p.n_hidden + first;
    take_sums(sums, p.n_splits, p.split_stride, v);
    take_sums(sums + p.n_hidden, p.n_splits, p.split_stride, up);
#pragma unroll
    for (u32 i = 0; i < 4; i++)
        v[i] = first + i < p.n_ffn ? experts_gated(p.activation, 0, v[i] * half_at(gate_svh, first + i),
                                                   up[i] * half_at(up_svh, first + i)) *
                                         half_at(suh, first + i)
                                   : 0;
}
