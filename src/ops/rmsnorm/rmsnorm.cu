// rmsnorm.cu - RMSNorm where no packing computes it; see rmsnorm.h.
//
// Computes   out[r][c] = (in[r][c] / sqrt(mean of squares + eps) * scale[c] + add[r][c]) * gain. Bound by
// memory.
//
//   group g of row r:  | t0 | t1 | ... | t1023 | t0 | ...     grid: rows, groups; block: 1024 threads, four
//                                                             columns at a time
//
// The first 4,096 columns stay in registers between the two passes; the scale is loaded before the block's
// inputs are there (programmatic dependent launch). Reduction: through shared memory. No epilogue.
#include "device/cuda/kernel.cuh"
#include "ops/rmsnorm/rmsnorm_cuda.h"

enum { NORM_THREADS = 1024 };

// Four columns a thread at a time; the first four stay in registers between both passes.
static __device__ __forceinline__ void norm_fours(const struct rmsnorm_params &p, u64 at, f32 *room)
{
    const float4 *from = (const float4 *)(p.in + at), *scale = (const float4 *)p.scale,
                 *add = p.add ? (const float4 *)(p.add + at) : nullptr;
    float4 *out = (float4 *)(p.out + at);
    u32 n = p.args.n_cols / 4, i = threadIdx.x;
    f32 gain = p.args.gain;
    float4 s = scale ? scale[min(i, n - 1)] : make_float4(1, 1, 1, 1);

    wait_for_inputs();
    float4 v = from[min(i, n - 1)];
    f32 squares = i < n ? v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w : 0;
    for (u32 c = i + NORM_THREADS; c < n; c += NORM_THREADS) {
        float4 w = from[c];
        squares += w.x * w.x + w.y * w.y + w.z * w.z + w.w * w.w;
    }
    f32 factor = norm_factor(block_sum(squares, room), p.args.n_cols, p.args.eps);
    for (; i < n; i += NORM_THREADS) {
        if (i >= NORM_THREADS) {
            v = from[i];
            s = scale ? scale[i] : s;
        }
        float4 x =
            make_float4(v.x * factor * s.x, v.y * factor * s.y, v.z * factor * s.z, v.w * factor * s.w);
        if (add)
            x = make_float4(x.x + add[i].x, x.y + add[i].y, x.z + add[i].z, x.w + add[i].w);
        out[i] = make_float4(x.x * gain, x.y * gain, x.z * gain, x.w * gain);
    }
}

extern "C" __global__ void __launch_bounds__(NORM_THREADS)
    rmsnorm(const __grid_constant__ struct rmsnorm_params p)
{
    __shared__ f32 room[33];
    u32 row = blockIdx.x;
    u64 at = ((u64)row * p.args.n_groups + blockIdx.y) * p.args.n_cols;
    const f32 *in = p.in + at;
    f32 *out = p.out + at, squares = 0;

    if (row >= n_rows_of(p.step, p.args.rows)) {
        wait_for_inputs();
        return;
    }
    if (p.args.n_cols % 4 == 0) {
        norm_fours(p, at, room);
        return;
    }
    wait_for_inputs();
    for (u32 c = threadIdx.x; c < p.args.n_cols; c += NORM_THREADS)
        squares += in[c] * in[c];
    f32 factor = norm_factor(block_sum(squares, room), p.args.n_cols, p.args.eps);
    for (u32 c = threadIdx.x; c < p.args.n_cols; c += NORM_THREADS)
        out[c] = (in[c] * factor * (p.scale ? p.scale[c] : 1) + (p.add ? p.add[at + c] : 0)) * p.args.gain;
}
