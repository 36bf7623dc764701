// scatter.cu - writes output rows to their places in the pool of embeddings; see scatter.h.
//
// Computes   pool[places[o]] = in[o]. Bound by memory.
//
//   row o:  | t0 | t1 | ... | t255 | t0 | ...     grid: outputs; block: 256 threads, columns in turn
//
// No pipeline, no shared memory, no epilogue.
#include "device/cuda/kernel.cuh"
#include "ops/scatter/scatter_cuda.h"

extern "C" __global__ void __launch_bounds__(256) scatter(const __grid_constant__ struct scatter_params p)
{
    wait_for_inputs();
    if (blockIdx.x >= p.step->n_outputs || p.places[blockIdx.x] >= p.args.n_rows)
        return;
    const f32 *in = p.in + (u64)blockIdx.x * p.args.n_cols;
    f32 *pool = p.pool + (u64)p.places[blockIdx.x] * p.args.n_cols;
    for (u32 c = threadIdx.x; c < p.args.n_cols; c += blockDim.x)
        pool[c] = in[c];
}
