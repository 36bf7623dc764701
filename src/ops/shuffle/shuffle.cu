// shuffle.cu - the operation as defined in shuffle.h: a block takes a row of an output's square.
#include "device/cuda/kernel.cuh"
#include "ops/shuffle/shuffle_cuda.h"

extern "C" __global__ void __launch_bounds__(128) shuffle(const __grid_constant__ struct shuffle_params p)
{
    u32 o = blockIdx.x, part = blockIdx.y, n = p.args.n_cols;

    wait_for_inputs();
    if (o >= p.step->n_outputs)
        return;
    u32 row = step_outputs(p.step)[o] + part / p.args.side * p.args.n_across + part % p.args.side;
    const f32 *in = p.in + (u64)row * n;
    f32 *out = p.out + ((u64)o * p.args.side * p.args.side + part) * n;
    for (u32 c = threadIdx.x; c < n; c += blockDim.x)
        out[c] = in[c];
}
