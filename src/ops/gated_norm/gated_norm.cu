// gated_norm.cu - the operation as defined in gated_norm.h: a warp takes a group of a row.
//
//   four groups of a row to a block        grid: (groups / 4, rows)
//
// Two passes over a group, which stays in the first cache. Bound by memory.
#include "device/cuda/kernel.cuh"
#include "ops/gated_norm/gated_norm_cuda.h"

static __device__ __forceinline__ f32 gate_of(f32 z, u32 flags)
{
    return (flags & GATED_SIGMOID ? 1 : z) / (1 + expf(-z));
}

extern "C" __global__ void __launch_bounds__(128)
    gated_norm(const __grid_constant__ struct gated_norm_params p)
{
    u32 row = blockIdx.y, group = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x & 31, n = p.args.n,
        flags = p.args.flags;

    wait_for_inputs();
    if (row >= p.step->n_rows || group >= p.args.n_groups)
        return;
    u64 at = ((u64)row * p.args.n_groups + group) * n;
    const f32 *in = p.in + at, *z = p.z + (u64)row * p.args.z_cols + p.args.z_at + group * n,
              *scale = p.scale ? p.scale + group * p.args.scale_step : nullptr;
    f32 squares = 0, factor = 1;
    for (u32 c = lane; c < n && scale; c += 32) {
        f32 x = flags & GATED_FIRST ? in[c] * gate_of(z[c], flags) : in[c];
        squares += x * x;
    }
    if (scale)
        factor = norm_factor(warp_sum(squares), n, p.args.eps);
    for (u32 c = lane; c < n; c += 32)
        p.out[at + c] = in[c] * gate_of(z[c], flags) * factor * (scale ? scale[c] : 1);
}
