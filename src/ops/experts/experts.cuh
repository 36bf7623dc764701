// experts.cuh - what the experts' CUDA kernels share: the weight rows of a task, and its end.
#pragma once
#include "device/cuda/kernel.cuh"
#include "ops/experts/experts_cuda.h"
#include "ops/experts/experts_gated.cuh"

struct experts_task {
    u32 expert, at; // pair `at` of the expert
    u32 row[2];     // of w[0] and w[1]
};

static __device__ __forceinline__ struct experts_task experts_task_of(const struct experts_params &p,
                                                                      u32 expert, u32 at)
{
    u32 first = expert * p.n_out;

    if (p.gated)
        return { expert, at, { first + at, first + at } };
    return { expert, at, { first + 2 * at, first + min(2 * at + 1, p.n_out - 1) } };
}

static __device__ __forceinline__ u32 experts_n_entries(const struct experts_params &p)
{
    return p.step->n_rows * p.n_slots;
}

static __device__ __forceinline__ u8 *experts_packed_at(const struct experts_params &p, u8 *packed, u32 entry)
{
    return packed + (u64)experts_packed_row(entry, p.n_slots, p.slot_stride) * p.packed_stride;
}

static __device__ __forceinline__ void experts_store(const struct experts_params &p,
                                                     const struct experts_task &t, u32 entry, float2 sum)
{
    f32 *out = p.out + (u64)(entry / p.n_slots) * p.out_stride + entry % p.n_slots * p.n_out;
    f32 first = sum.x + (p.bias[0] ? p.bias[0][t.row[0]] : 0),
        second = sum.y + (p.bias[1] ? p.bias[1][t.row[1]] : 0);

    if (p.gated) {
        out[t.at] = experts_gated(p.activation, p.limit, first, second);
        return;
    }
    out[2 * t.at] = first;
    if (2 * t.at + 1 < p.n_out)
        out[2 * t.at + 1] = second;
}
