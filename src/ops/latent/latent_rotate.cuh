// latent_rotate.cuh - the part of a query or key that rotates; four numbers of a row.
#pragma once
#include "device/cuda/kernel.cuh"
#include "ops/latent/latent_cuda.h"

static __device__ __forceinline__ void latent_rotate_pair(const f32 *in, f32 *out, const f32 *angles, u32 i,
                                                          u32 n, u32 pairs)
{
    u32 first = pairs == ROPE_ADJACENT ? 2 * i : i, second = pairs == ROPE_ADJACENT ? 2 * i + 1 : i + n / 2;
    f32 x = in[first], y = in[second], cosine = angles[2 * i], sine = angles[2 * i + 1];

    out[first] = x * cosine - y * sine;
    out[second] = y * cosine + x * sine;
}

static __device__ __forceinline__ float4 latent_load_four(const f32 *x, bool aligned)
{
    return aligned ? *(const float4 *)x : make_float4(x[0], x[1], x[2], x[3]);
}

// What lies behind each head's x: block `block` of the grid's last ones takes a head, a thread a pair of a
// row.
static __device__ __forceinline__ void latent_rotate_rest(const struct latent_project_params &p, u32 head)
{
    const struct latent_project_args &a = p.args;
    u32 n_pairs = a.n_rotated / 2, n = (p.step->n_rows + gridDim.y - 1 - blockIdx.y) / gridDim.y * n_pairs;

    for (u32 i = threadIdx.x; i < n; i += blockDim.x) {
        u32 row = blockIdx.y + i / n_pairs * gridDim.y;
        latent_rotate_pair(p.in + ((u64)row * a.n_heads + head) * (a.n_cols + a.n_rotated) + a.n_cols,
                           p.out + ((u64)row * a.n_heads + head) * (a.n_rows + a.n_rotated) + a.n_rows,
                           p.angles + (u64)row * a.n_rotated, i % n_pairs, a.n_rotated, a.pairs);
    }
}
