// angles.cu - the operation as defined in angles.h: a block takes a row. The full-range sine and cosine:
// angles reach 10^5.
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
