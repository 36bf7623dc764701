// activate.cu - the activation of a gated block where no product's epilogue computes it; see activate.h.
//
// Computes   out[r][c] = f(gate[r][c]) * up[r][c]. Bound by memory.
//
//   row r:  | t0 | t1 | ... | t255 | t0 | ...     grid: rows; block: 256 threads, which take columns in turn
//
// No pipeline, no shared memory, no epilogue.
#include "device/cuda/kernel.cuh"
#include "ops/activate/activate_cuda.h"
#include "gemm/cuda/activation.cuh"

extern "C" __global__ void __launch_bounds__(256) activate(const __grid_constant__ struct activate_params p)
{
    u64 first = (u64)blockIdx.x * p.args.n_cols;

    wait_for_inputs();
    if (blockIdx.x >= p.step->n_rows)
        return;
    for (u32 c = threadIdx.x; c < p.args.n_cols; c += blockDim.x)
        p.out[first + c] =
            activation_of(p.args.activation, p.gate[first + c]) * (p.args.gated ? p.up[first + c] : 1.0f);
}
