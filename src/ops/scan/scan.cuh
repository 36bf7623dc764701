// scan.cuh - what the kernels by rows and by blocks ask of a row.
#pragma once
#include "device/cuda/kernel.cuh"
#include "device/cuda/sequences.h"
#include "ops/scan/scan_cuda.h"

static __device__ __forceinline__ f32 softplus(f32 x)
{
    return x > 20 ? x : log1pf(expf(x));
}

// The logarithm of the decay, and the factor of the rule or of v.
static __device__ __forceinline__ f32 take_gates(const struct scan_params &p, u32 head, u32 row, f32 &factor)
{
    bool delta = p.args.flags & SCAN_DELTA;
    f32 t = softplus(p.dt[(u64)row * p.args.dt_cols + p.args.dt_at + head] + p.dt_bias[head]), a = p.a[head];

    if (!delta)
        t = fminf(fmaxf(t, p.args.t_min), p.args.t_max);
    factor = delta ? 1 / (1 + expf(-p.beta[(u64)row * p.args.beta_cols + p.args.beta_at + head])) : t;
    return (p.args.flags & SCAN_LOG_A ? -expf(a) : a) * t;
}

// Whether the row is one of at least SCAN_LONG neighbours of a sequence. The same in all lanes of a warp.
static __device__ __forceinline__ bool scan_is_long(const struct step *step, u32 row)
{
    u32 lane = threadIdx.x & 31; // 15: the row itself
    u32 next = __ballot_sync(~0u, row + lane >= 15 && sequence_goes_on(step, row + lane - 15));
    u32 n_above = __clz((int)~(next << 16)), n_below = (u32)__ffs((int)~(next >> 16)) - 1;

    return n_above + 1 + n_below >= SCAN_LONG;
}
