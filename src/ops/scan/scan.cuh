// scan.cuh - what the kernels by rows and by blocks ask of a row, and a row's step of the recurrence.
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

static __device__ __forceinline__ f32 slices_sum(f32 v) // over the four slices of d_k in a warp
{
    v += __shfl_xor_sync(~0u, v, 8);
    return v + __shfl_xor_sync(~0u, v, 16);
}

struct scan_move {
    f32 decay, factor;      // factor: of the rule, or of v
    f32 q_factor, k_factor; // which bring q and k to their length
};

// Moves the thread's numbers of its column on by a row. k and q: those of its slice. Returns S^T q, in all
// four slices.
template <u32 J>
static __device__ __forceinline__ f32 scan_move_on(f32 (&state)[J], const float4 *k, const float4 *q,
                                                   const struct scan_move &row, f32 v, bool delta)
{
    f32 d = row.factor * v, sum[4] = { 0, 0, 0, 0 };

    if (delta) {
#pragma unroll
        for (u32 j = 0; j < J / 4; j++) {
            float4 key = k[j];
            sum[0] += key.x * state[4 * j];
            sum[1] += key.y * state[4 * j + 1];
            sum[2] += key.z * state[4 * j + 2];
            sum[3] += key.w * state[4 * j + 3];
        }
        f32 found = slices_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
        d = row.factor * (v - row.decay * (row.k_factor * found));
        sum[0] = sum[1] = sum[2] = sum[3] = 0;
    }
    d *= row.k_factor;
#pragma unroll
    for (u32 j = 0; j < J / 4; j++) {
        float4 key = k[j], query = q[j];
        state[4 * j] = row.decay * state[4 * j] + key.x * d;
        state[4 * j + 1] = row.decay * state[4 * j + 1] + key.y * d;
        state[4 * j + 2] = row.decay * state[4 * j + 2] + key.z * d;
        state[4 * j + 3] = row.decay * state[4 * j + 3] + key.w * d;
        sum[0] += query.x * state[4 * j];
        sum[1] += query.y * state[4 * j + 1];
        sum[2] += query.z * state[4 * j + 2];
        sum[3] += query.w * state[4 * j + 3];
    }
    return row.q_factor * slices_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}
