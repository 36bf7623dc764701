// row_plain.cuh - a weight row times fp32 activations, every format: for kernels that round nothing.
#pragma once
#include "gemm/cuda/weight_layout.cuh"

static __device__ __forceinline__ f32 plain_number(const struct weight_planes &w, u64 at)
{
    return w.format == QUANT_F32   ? ((const f32 *)w.quants)[at]
           : w.format == QUANT_F16 ? __half2float(((const __half *)w.quants)[at])
                                   : __uint_as_float((u32)((const u16 *)w.quants)[at] << 16);
}

struct lane_span { // lanes that share a row
    u32 lane, lanes;
};

// A lane's part of the sum. PITCH: numbers between the activations of two blocks of 32.
template <u32 F, u32 PITCH>
static __device__ f32 dot_row_exact(const struct weight_planes &w, u32 row, const f32 *x, struct lane_span s)
{
    f32 sum = 0;

    for (u32 block = s.lane; block < w.n_cols / 32; block += s.lanes) {
        struct unpacked u = unpack_block<F>(load_block<F>(w, row, block));
        const f32 *at = x + block * PITCH;
#pragma unroll
        for (u32 i = 0; i < 32; i++)
            sum =
                fmaf(u.scale[i / 16] * (f32)(int)(signed char)(u.q[i / 4] >> 8 * (i % 4)) + u.offset[i / 16],
                     at[i], sum);
    }
    return sum;
}

template <u32 PITCH>
static __device__ __noinline__ f32 dot_row_quantised(const struct weight_planes &w, u32 row, const f32 *x,
                                                     struct lane_span s)
{
    f32 sum = 0;
    FOR_QUANTISED(w.format, sum = (dot_row_exact<F, PITCH>(w, row, x, s)))
    return sum;
}

// Any format; activations are contiguous.
static __device__ __forceinline__ f32 dot_row_any(const struct weight_planes &w, u32 row, const f32 *x,
                                                  struct lane_span s)
{
    f32 sum = 0;

    if (w.format > QUANT_BF16)
        return dot_row_quantised<32>(w, row, x, s);
    for (u32 i = s.lane; i < w.n_cols; i += s.lanes)
        sum = fmaf(plain_number(w, (u64)row * w.n_cols + i), x[i], sum);
    return sum;
}
