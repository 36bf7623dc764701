// latent_weights.cuh - blocks of 32 numbers of a weight row as 16 words of two, bf16 or fp16; every format.
#pragma once
#include "gemm/cuda/row_plain.cuh"
#include "ops/latent/latent_queries.cuh"

template <u32 F, bool BF16>
static __device__ __forceinline__ void latent_unpack_32(const struct weight_planes &w, u32 row, u32 block,
                                                        u32 (&to)[16])
{
    struct unpacked u = unpack_block<F>(
        block_at<F, false>({ w.quants, w.high, w.scales, w.deltas }, row * (w.n_cols / 32) + block));
#pragma unroll
    for (u32 i = 0; i < 32; i += 2) {
        f32 low = u.scale[i / 16] * (f32)(int)(signed char)(u.q[i / 4] >> 8 * (i % 4)) + u.offset[i / 16],
            high =
                u.scale[i / 16] * (f32)(int)(signed char)(u.q[i / 4] >> 8 * (i % 4 + 1)) + u.offset[i / 16];
        to[i / 2] = two_numbers<BF16>(low, high);
    }
}

template <bool BF16>
static __device__ __forceinline__ void latent_read_32(const struct weight_planes &w, u32 row, u32 block,
                                                      u32 (&to)[16])
{
    u64 at = (u64)row * w.n_cols + block * 32;

    if (w.format > QUANT_BF16) {
        FOR_QUANTISED(w.format, (latent_unpack_32<F, BF16>(w, row, block, to)))
    } else {
#pragma unroll
        for (u32 i = 0; i < 16; i++)
            to[i] = two_numbers<BF16>(plain_number(w, at + 2 * i), plain_number(w, at + 2 * i + 1));
    }
}
