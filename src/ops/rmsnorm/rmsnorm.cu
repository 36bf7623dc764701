// rmsnorm.cu - the operation as defined in rmsnorm.h: a block takes a row.
#include "device/cuda/kernel.cuh"
#include "ops/rmsnorm/rmsnorm_cuda.h"

extern "C" __global__ void __launch_bounds__(256) rmsnorm(const __grid_constant__ struct rmsnorm_params p)
{
    __shared__ f32 room[33];
    u32 row = blockIdx.x, n_rows = n_rows_of(p.step, p.args.rows);
    f32 squares = 0;

    wait_for_inputs();
    if (row >= n_rows)
        return;
    const f32 *in = p.in + (u64)row * p.args.n_cols;
    f32 *out = p.out + (u64)row * p.args.n_cols;
    for (u32 c = threadIdx.x; c < p.args.n_cols; c += blockDim.x)
        squares += in[c] * in[c];
    f32 factor = norm_factor(block_sum(squares, room), p.args.n_cols, p.args.eps);
    for (u32 c = threadIdx.x; c < p.args.n_cols; c += blockDim.x)
        out[c] = in[c] * factor * p.scale[c];
}
