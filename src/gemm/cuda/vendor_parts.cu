// vendor_parts.cu - what surrounds a GEMM of the vendor's library (--gemm vendor): plain kernels, for
// comparison and as a fallback.
//
//   vendor_rows     activations, normalised, to bf16 [rows][columns]       a block a row
//   vendor_weights  weights, dequantised, to bf16 [weight rows][columns]   a thread a block of 32
//   vendor_finish   the library's fp32 sums through the epilogue           a thread a pair and row
//
// No pipeline and no tiles of their own.
#include "gemm/cuda/fragments.cuh"
#include "gemm/cuda/epilogue.cuh"
#include "gemm/cuda/vendor_parts.h"

enum { VENDOR_THREADS = 256 };

extern "C" __global__ void __launch_bounds__(VENDOR_THREADS)
    vendor_rows(const __grid_constant__ struct packing_params p)
{
    __shared__ f32 room[33];
    f32 factor = 1, squares = 0;

    wait_for_inputs();
    if (blockIdx.x >= n_rows_of(p.step, p.rows))
        return;
    const f32 *in = p.in + (u64)blockIdx.x * p.n_cols;
    if (p.norm) {
        for (u32 i = threadIdx.x; i < p.n_cols; i += VENDOR_THREADS)
            squares += in[i] * in[i];
        factor = norm_factor(block_sum(squares, room), p.n_cols, p.eps);
    }
    for (u32 i = threadIdx.x; i < p.n_cols; i += VENDOR_THREADS)
        ((__nv_bfloat16 *)p.out)[(u64)blockIdx.x * p.n_cols + i] =
            __float2bfloat16_rn(in[i] * factor * (p.norm ? p.norm[i] : 1));
}

// One thread per block of 32 weights.
extern "C" __global__ void __launch_bounds__(VENDOR_THREADS)
    vendor_weights(const __grid_constant__ struct vendor_weights_params p)
{
    u64 at = (u64)blockIdx.x * VENDOR_THREADS + threadIdx.x;
    u32 n_blocks = p.w.n_cols / 32, row = (u32)(at / n_blocks), block = at % n_blocks;
    __nv_bfloat16 *out = (__nv_bfloat16 *)p.out + at * 32;

    wait_for_inputs();
    if (row >= p.w.n_rows)
        return;
    if (p.w.format == QUANT_F16) {
        for (u32 i = 0; i < 32; i++)
            out[i] = __float2bfloat16_rn(__half2float(((const __half *)p.w.quants)[at * 32 + i]));
        return;
    }
    FOR_QUANTISED(p.w.format, {
        struct unpacked u = unpack_block<F>(load_block<F>(p.w, row, block));
        for (u32 i = 0; i < 32; i++)
            out[i] =
                __float2bfloat16_rn(u.scale[i / 16] * signed_byte((u32)u.q[i / 4], i % 4) + u.offset[i / 16]);
    })
}

extern "C" __global__ void __launch_bounds__(VENDOR_THREADS)
    vendor_finish(const __grid_constant__ struct vendor_finish_params p)
{
    u32 at = blockIdx.x * VENDOR_THREADS + threadIdx.x, row = blockIdx.y;

    wait_for_inputs();
    if (at >= p.pairs.n_pairs || row >= n_rows_of(p.pairs.step, p.pairs.rows))
        return;
    struct pair r = pair_find(p.pairs, p.pairs.first_pair + at, p.pairs.mode);
    f32 sums[2];
    for (u32 i = 0; i < 2; i++)
        sums[i] = p.sums[r.matrix[i]][(u64)row * p.pairs.w[r.matrix[i]].n_rows + r.row[i]];
    pair_finish(p.pairs, r, row, sums[0], sums[1]);
}
