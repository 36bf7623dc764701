// gated_norm.cu - the operation as defined in gated_norm.h.
//
//   gated_norm:       a warp takes a group of a row      grid: (groups / 4, rows)
//   gated_norm_wide:  a block takes it                   grid: (groups, rows)
//
// Two passes over a group, which stays in the first cache. Bound by memory.
#include "device/cuda/kernel.cuh"
#include "ops/gated_norm/gated_norm_cuda.h"

enum { AT_ONCE = 4 }; // numbers of a thread

static __device__ __forceinline__ f32 gate_of(f32 z, u32 flags)
{
    return (flags & GATED_SIGMOID ? 1 : z) / (1 + expf(-z));
}

// The group's numbers `first`, first + step and so on. SUM: over all threads that share the group.
template <typename Sum>
static __device__ __forceinline__ void norm_group(const struct gated_norm_params &p, u32 group, u32 first,
                                                  u32 step, Sum sum)
{
    u32 row = blockIdx.y, n = p.args.n, flags = p.args.flags;
    u64 at = ((u64)row * p.args.n_groups + group) * n;
    const f32 *in = p.in + at, *z = p.z + (u64)row * p.args.z_cols + p.args.z_at + group * n,
              *scale = p.scale ? p.scale + group * p.args.scale_step : nullptr;
    f32 squares = 0, factor = 1;

    for (u32 c = first; c < n && scale; c += step) {
        f32 x = flags & GATED_FIRST ? in[c] * gate_of(z[c], flags) : in[c];
        squares += x * x;
    }
    if (scale)
        factor = norm_factor(sum(squares), n, p.args.eps);
    for (u32 c = first; c < n; c += AT_ONCE * step) {
        f32 x[AT_ONCE];
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; i++) // before the first store, which may be to the same memory
            if (c + i * step < n)
                x[i] = in[c + i * step] * gate_of(z[c + i * step], flags) * factor *
                       (scale ? scale[c + i * step] : 1);
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; i++)
            if (c + i * step < n)
                p.out[at + c + i * step] = x[i];
    }
}

extern "C" __global__ void __launch_bounds__(128)
    gated_norm(const __grid_constant__ struct gated_norm_params p)
{
    u32 group = blockIdx.x * 4 + threadIdx.x / 32;

    wait_for_inputs();
    if (blockIdx.y < p.step->n_rows && group < p.args.n_groups)
        norm_group(p, group, threadIdx.x & 31, 32, [](f32 v) { return warp_sum(v); });
}

extern "C" __global__ void __launch_bounds__(GATED_WIDE_THREADS)
    gated_norm_wide(const __grid_constant__ struct gated_norm_params p)
{
    __shared__ f32 room[33];

    wait_for_inputs();
    if (blockIdx.y < p.step->n_rows)
        norm_group(p, blockIdx.x, threadIdx.x, GATED_WIDE_THREADS, [&](f32 v) { return block_sum(v, room); });
}
