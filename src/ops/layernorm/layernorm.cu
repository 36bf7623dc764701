// layernorm.cu - LayerNorm in two passes over the row: mean, then variance; see layernorm.h.
//
// Computes   out[r][c] = (in[r][c] - mean) / sqrt(variance + eps) * scale[c] + bias[c]. Bound by memory.
//
//   layernorm_warp  a warp per row, 8 rows per block: the row stays in registers, read once; a kernel for
//                   rows of up to 768 columns has room for more warps
//   layernorm       a block of 256 threads per row: rows of any length, read three times, from the caches
//
//   row r:  | l0 | l1 | ... | l31 | l0 | ...     four columns a lane at a time
//
// Reduction: warp shuffles, or through shared memory. No pipeline, no epilogue.
#include "device/cuda/kernel.cuh"
#include "gemm/cuda/epilogue_pack.cuh"
#include "gemm/cuda/int8_tiles.cuh"
#include "ops/layernorm/layernorm_cuda.h"

// FOURS: of columns, that a lane keeps.
template <u32 FOURS> static __device__ __forceinline__ void layernorm_rows(const struct layernorm_params &p)
{
    u32 lane = threadIdx.x % 32, row = blockIdx.x * (LAYERNORM_THREADS / 32) + threadIdx.x / 32,
        n = p.args.n_cols / 4;
    const float4 *in = (const float4 *)(p.in + (u64)row * p.args.n_cols), *scale = (const float4 *)p.scale,
                 *bias = (const float4 *)p.bias;
    float4 *out = (float4 *)(p.out + (u64)row * p.args.n_cols), v[FOURS];
    f32 sum = 0, squares = 0;

    wait_for_inputs();
    if (row >= n_rows_of(p.step, p.args.rows))
        return;
#pragma unroll
    for (u32 i = 0; i < FOURS; i++) {
        v[i] = lane + 32 * i < n ? in[lane + 32 * i] : make_float4(0, 0, 0, 0);
        sum += (v[i].x + v[i].y) + (v[i].z + v[i].w);
    }
    f32 mean = warp_sum(sum) / (f32)p.args.n_cols;
#pragma unroll
    for (u32 i = 0; i < FOURS; i++) {
        v[i] = make_float4(v[i].x - mean, v[i].y - mean, v[i].z - mean, v[i].w - mean);
        if (lane + 32 * i < n)
            squares += (v[i].x * v[i].x + v[i].y * v[i].y) + (v[i].z * v[i].z + v[i].w * v[i].w);
    }
    f32 factor = norm_factor(warp_sum(squares), p.args.n_cols, p.args.eps);
#pragma unroll
    for (u32 i = 0; i < FOURS; i++)
        if (lane + 32 * i < n) {
            // Weights do not change: their loads need not wait for the stores before.
            float4 s = __ldg(scale + lane + 32 * i), b = __ldg(bias + lane + 32 * i);
            float4 y = make_float4(v[i].x * factor * s.x + b.x, v[i].y * factor * s.y + b.y,
                                   v[i].z * factor * s.z + b.z, v[i].w * factor * s.w + b.w);
            if (p.out)
                out[lane + 32 * i] = y;
            if (p.packed_out.form >= PACKING_INT8_TILES) { // all lanes are here
                put_int8_chunk(p.packed_out.at, p.packed_out.n_cols, row, 4 * (lane + 32 * i), y,
                               p.packed_out.form == PACKING_INT8_WIDE);
            } else if (p.packed_out.at) {
                __nv_bfloat162 *packed =
                    (__nv_bfloat162 *)packed_place(p.packed_out, row, 4 * (lane + 32 * i));
                packed[0] = __floats2bfloat162_rn(y.x, y.y);
                packed[1] = __floats2bfloat162_rn(y.z, y.w);
            }
        }
}

extern "C" __global__ void __launch_bounds__(LAYERNORM_THREADS)
    layernorm_warp(const __grid_constant__ struct layernorm_params p)
{
    layernorm_rows<LAYERNORM_WARP_FOURS>(p);
}
extern "C" __global__ void __launch_bounds__(LAYERNORM_THREADS)
    layernorm_warp_768(const __grid_constant__ struct layernorm_params p)
{
    layernorm_rows<768 / 128>(p);
}

extern "C" __global__ void __launch_bounds__(LAYERNORM_THREADS)
    layernorm(const __grid_constant__ struct layernorm_params p)
{
    __shared__ f32 room[33];
    const f32 *in = p.in + (u64)blockIdx.x * p.args.n_cols;
    f32 *out = p.out + (u64)blockIdx.x * p.args.n_cols, sum = 0, squares = 0;

    wait_for_inputs();
    if (blockIdx.x >= n_rows_of(p.step, p.args.rows))
        return;
    for (u32 c = threadIdx.x; c < p.args.n_cols; c += LAYERNORM_THREADS)
        sum += in[c];
    f32 mean = block_sum(sum, room) / (f32)p.args.n_cols;
    for (u32 c = threadIdx.x; c < p.args.n_cols; c += LAYERNORM_THREADS)
        squares += (in[c] - mean) * (in[c] - mean);
    f32 factor = norm_factor(block_sum(squares, room), p.args.n_cols, p.args.eps);
    for (u32 c = threadIdx.x; c < p.args.n_cols; c += LAYERNORM_THREADS)
        out[c] = (in[c] - mean) * factor * p.scale[c] + p.bias[c];
}
