// activate.cu - the activation of a gated block where no product's epilogue computes it; see activate.h.
//
// Computes   out[r][c] = f(gate[r][c]) * up[r][c]. Bound by memory.
//
//   row r:  | t0 | t1 | ... | t255 | t0 | ...     grid: rows, parts; block: 256 threads, which take columns
//                                                 in turn
//
// No pipeline, no shared memory, no epilogue.
#include "device/cuda/kernel.cuh"
#include "ops/activate/activate_cuda.h"
#include "gemm/cuda/activation.cuh"

static __device__ f32 activated(const struct activate_args &a, f32 x)
{
    return a.activation == ACTIVATION_CAP    ? a.limit * tanhf(x / a.limit)
           : a.activation == ACTIVATION_RELU ? (x < 0 ? 0 : x)
           : a.activation == ACTIVATION_GELU ? 0.5f * x * (1 + erff(x * 0.7071067812f)) // sqrt(1 / 2)
                                             : activation_of(a.activation, x);
}

extern "C" __global__ void __launch_bounds__(256) activate(const __grid_constant__ struct activate_params p)
{
    u64 first = (u64)blockIdx.x * p.args.n_cols, up = (u64)blockIdx.x * p.args.up_cols + p.args.up_first;

    wait_for_inputs();
    if (blockIdx.x >= n_rows_of(p.step, p.args.rows))
        return;
    for (u32 c = blockIdx.y * blockDim.x + threadIdx.x; c < p.args.n_cols; c += gridDim.y * blockDim.x)
        p.out[first + c] = activated(p.args, p.gate[first + c]) * (p.args.gated ? p.up[up + c] : 1.0f);
}
