// shuffle.cu - pixel shuffle: joins a square of neighbouring rows to one; see shuffle.h.
//
// Computes   out[o] = the rows of output o's square, one after the other. Bound by memory.
//
//   out[o]:  | row 0 | row 1 | ... | row side^2 - 1 |     grid: (outputs, rows of a square); block: 128
//
// No pipeline, no shared memory, no epilogue.
#include "device/cuda/kernel.cuh"
#include "gemm/cuda/epilogue_pack.cuh"
#include "ops/shuffle/shuffle_cuda.h"

extern "C" __global__ void __launch_bounds__(128) shuffle(const __grid_constant__ struct shuffle_params p)
{
    u32 o = blockIdx.x, part = blockIdx.y, n = p.args.n_cols;

    wait_for_inputs();
    if (o >= p.step->n_outputs)
        return;
    u32 row = step_outputs(p.step)[o] + part / p.args.side * p.args.n_across + part % p.args.side;
    const f32 *in = p.in + (u64)row * n;
    u64 first = ((u64)o * p.args.side * p.args.side + part) * n;
    for (u32 c = threadIdx.x; p.out && c < n; c += blockDim.x)
        p.out[first + c] = in[c];
    for (u32 c = 4 * threadIdx.x; p.packed_out.at && c < n; c += 4 * blockDim.x) {
        float4 v = *(const float4 *)(in + c);
        __nv_bfloat162 *packed = (__nv_bfloat162 *)packed_place(p.packed_out, o, part * n + c);
        packed[0] = __floats2bfloat162_rn(v.x, v.y);
        packed[1] = __floats2bfloat162_rn(v.z, v.w);
    }
}
