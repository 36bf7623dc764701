// select.cu - the operation as defined in select.h: a block copies a row.
#include "device/cuda/kernel.cuh"
#include "ops/select/select_cuda.h"

extern "C" __global__ void __launch_bounds__(256) select_rows(const __grid_constant__ struct select_params p)
{
    wait_for_inputs();
    if (blockIdx.x >= p.step->n_outputs)
        return;
    const f32 *in = p.in + (u64)step_outputs(p.step)[blockIdx.x] * p.args.n_cols;
    for (u32 c = threadIdx.x; c < p.args.n_cols; c += blockDim.x)
        p.out[(u64)blockIdx.x * p.args.n_cols + c] = in[c];
}
