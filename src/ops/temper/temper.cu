// temper.cu - a factor on a row that grows with its position; see temper.h.
//
// Computes   out[r][c] = in[r][c] * (1 + beta * ln(1 + floor(position / period))). Bound by memory.
//
//   row r:  | t0 | t1 | ... | t255 | t0 | ...     grid: rows; block: 256 threads, which take columns in turn
//
// No pipeline, no shared memory, no epilogue.
#include "device/cuda/kernel.cuh"
#include "ops/temper/temper_cuda.h"

extern "C" __global__ void __launch_bounds__(256) temper(const __grid_constant__ struct temper_params p)
{
    u32 row = blockIdx.x;
    u64 first = (u64)row * p.args.n_cols;

    wait_for_inputs();
    if (row >= p.step->n_rows)
        return;
    f32 factor = 1.0f + p.args.beta * logf(1.0f + (f32)(step_positions(p.step)[row] / p.args.period));
    for (u32 c = threadIdx.x; c < p.args.n_cols; c += blockDim.x)
        p.out[first + c] = p.in[first + c] * factor;
}
