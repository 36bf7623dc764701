// scale_add.cu - a residual with a factor for each column; see scale_add.h.
//
// Computes   out[r][c] = in[r][c] * scale[c] + add[r][c]. Bound by memory.
//
//   row r:  | t0 | t1 | ... | t255 | t0 | ...     grid: rows; block: 256 threads, which take columns in turn
//
// No pipeline, no shared memory, no epilogue.
#include "device/cuda/kernel.cuh"
#include "ops/scale_add/scale_add_cuda.h"

extern "C" __global__ void __launch_bounds__(256) scale_add(const __grid_constant__ struct scale_add_params p)
{
    u64 first = (u64)blockIdx.x * p.args.n_cols;

    wait_for_inputs();
    if (blockIdx.x >= p.step->n_rows)
        return;
    for (u32 c = threadIdx.x; c < p.args.n_cols; c += blockDim.x)
        p.out[first + c] = p.in[first + c] * p.scale[c] + p.add[first + c];
}
