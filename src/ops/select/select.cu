// select.cu - copies the rows that want logits; see select.h.
//
// Computes   out[o] = in[outputs[o]]. Bound by memory.
//
//   row o:  | t0 | t1 | ... | t1023 | t0 | ...     grid: outputs; block: 1024 threads, four columns each
//
// No pipeline, no shared memory, no epilogue.
#include "device/cuda/kernel.cuh"
#include "ops/select/select_cuda.h"

extern "C" __global__ void __launch_bounds__(1024) select_rows(const __grid_constant__ struct select_params p)
{
    bool exists = blockIdx.x < p.step->n_outputs;
    const f32 *in = p.in + (exists ? (u64)step_outputs(p.step)[blockIdx.x] * p.args.n_cols : 0);

    wait_for_inputs();
    if (!exists)
        return;
    f32 *out = p.out + (u64)blockIdx.x * p.args.n_cols;
    if (p.args.n_cols % 4 == 0)
        for (u32 c = threadIdx.x; c < p.args.n_cols / 4; c += blockDim.x)
            ((float4 *)out)[c] = ((const float4 *)in)[c];
    else
        for (u32 c = threadIdx.x; c < p.args.n_cols; c += blockDim.x)
            out[c] = in[c];
}
