// angles.cu - cosines and sines of a step's rows for RoPE, once per step; see angles.h.
//
// Computes   out[r][i] = (cos, sin)(position[r] * frequency[i]) * scale. Sine and cosine have full range:
// angles reach 10^5.
//
//   row r:  | t0 | t1 | ... | t63 | t0 | ...     grid: rows; block: 64 threads, which take pairs in turn
//
// No pipeline, no shared memory, no epilogue.
#include "device/cuda/kernel.cuh"
#include "ops/angles/angles_cuda.h"

extern "C" __global__ void __launch_bounds__(64) angles(const __grid_constant__ struct angles_params p)
{
    u32 row = blockIdx.x;

    wait_for_inputs();
    if (row >= p.step->n_rows)
        return;
    f32 *out = p.out + (u64)row * 2 * p.args.n_pairs, position = (f32)step_positions(p.step)[row];
    for (u32 i = threadIdx.x; i < p.args.n_pairs; i += blockDim.x) {
        f32 angle = __fmul_rn(position, p.frequencies[i]);
        out[2 * i] = cosf(angle) * p.args.scale;
        out[2 * i + 1] = sinf(angle) * p.args.scale;
    }
}
