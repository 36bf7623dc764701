// gemm_few.cu - GEMM for 2 to 16 rows of activations, and for any number where a row must get the same bits
// whatever shares its step.
//
// Computes   out[row][n] = sum over k of x[row][k] * w[n][k], then the epilogue (epilogue.cuh). Bound by
// reading the weights.
//
//              k: steps of 128 columns, dealt to the 8 warps in turn
//            +------+------+------+------+--
//   16 pairs | warp | warp | warp | warp | ...   x  16 rows of activations (two N tiles of mma.m16n8k16)
//   of weight|  0   |  1   |  2   |  3   |
//   rows     +------+------+------+------+--     grid: (row tiles of 16, tiles of 16 pairs), row tiles first
//
// Pipeline: each warp keeps its next weights in registers, the first before the inputs are there
// (programmatic dependent launch).
//
// Operands: weights are dequantised to bf16 fragments in registers (fragments.cuh); activations come from the
// L2 cache in fragment order (PACKING_MMA).
// Reduction: intra-block split-K; the warps' sums are added in shared memory, in the order of the warps, so
// the order of a sum depends on n_cols alone.
// Epilogue: any.
#include "gemm/cuda/fragments.cuh"
#include "gemm/cuda/epilogue.cuh"

enum { FEW_WARPS = 8 };

template <u32 F, u32 TILES> struct few {
    f32 sums[TILES][2][4]; // [tile of 8 pairs][tile of 8 rows]
};

// Two steps: their activations are one 16-byte word per lane and tile of rows.
template <u32 F, u32 Q>
static __device__ __forceinline__ void quarter(const struct prepared<F> (&w)[2], f32 (&sums)[2][4],
                                               const uint4 *x, u64 row_tile, bool second)
{
    u32 a[4], b[4];
    uint4 x0 = __ldcg(x + Q * 32), x1 = second ? __ldcg(x + row_tile + Q * 32) : make_uint4(0, 0, 0, 0);

    fragment<F, 2 * Q>(w, a);
    fragment<F, 2 * Q + 1>(w, b);
    mma_16816(sums[0], a, x0.x, x0.y);
    mma_16816(sums[0], b, x0.z, x0.w);
    if (second) {
        mma_16816(sums[1], a, x1.x, x1.y);
        mma_16816(sums[1], b, x1.z, x1.w);
    }
}

template <u32 F, u32 TILES>
static __device__ __forceinline__ void multiply(const struct gemm_params &p, struct few<F, TILES> &f,
                                                u32 first, u32 n_rows)
{
    u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, n_supers = p.packed_cols / 128,
        last = p.first_pair + p.n_pairs - 1;
    u64 row_tile = (u64)n_supers * 128; // in 16-byte words
    struct pair r[TILES];

#pragma unroll
    for (u32 i = 0; i < TILES; i++)
        r[i] = pair_find(p, min(first + i * 8 + lane / 4, last), p.mode);
    struct strip<F> next[TILES][2];
#pragma unroll
    for (u32 i = 0; i < TILES * 2; i++)
        strip_load<F>(next[i / 2][i % 2], p.w[r[i / 2].matrix[i % 2]], r[i / 2].row[i % 2],
                      warp * 4 + lane % 4);
    wait_for_inputs();
    bool second = n_rows > 8;
    for (u32 super = warp; super < n_supers; super += FEW_WARPS) {
        const uint4 *x = (const uint4 *)p.packed_mma + blockIdx.x * 2 * row_tile + (u64)super * 128 + lane;
        struct prepared<F> w[TILES][2];
#pragma unroll
        for (u32 i = 0; i < TILES * 2; i++) {
            strip_prepare<F>(w[i / 2][i % 2], next[i / 2][i % 2]);
            strip_load<F>(next[i / 2][i % 2], p.w[r[i / 2].matrix[i % 2]], r[i / 2].row[i % 2],
                          (super + FEW_WARPS) * 4 + lane % 4);
        }
#pragma unroll
        for (u32 i = 0; i < TILES; i++) {
            quarter<F, 0>(w[i], f.sums[i], x, row_tile, second);
            quarter<F, 1>(w[i], f.sums[i], x, row_tile, second);
            quarter<F, 2>(w[i], f.sums[i], x, row_tile, second);
            quarter<F, 3>(w[i], f.sums[i], x, row_tile, second);
        }
    }
}

template <u32 F, u32 TILES> static __device__ __forceinline__ void gemm_few(const struct gemm_params &p)
{
    __shared__ float4 partial[FEW_WARPS][TILES * 2][32];
    u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, first = p.first_pair + blockIdx.y * TILES * 8;
    u32 all = n_rows_of(p.step, p.rows), before = blockIdx.x * 16,
        n_rows = all > before ? min(all - before, 16u) : 0;
    struct few<F, TILES> f = {
        0
    };

    if (n_rows == 0) {
        if (blockIdx.x == 0) // one block is enough: the launch ends after the ones it depends on
            wait_for_inputs();
        return;
    }
    multiply<F, TILES>(p, f, first, n_rows);
#pragma unroll
    for (u32 i = 0; i < TILES * 2; i++) {
        const f32 *s = f.sums[i / 2][i % 2];
        partial[warp][i][lane] = make_float4(s[0], s[1], s[2], s[3]);
    }
    __syncthreads();
    for (u32 i = warp; i < TILES * 2; i += FEW_WARPS) {
        float4 sum = partial[0][i][lane];
        for (u32 w = 1; w < FEW_WARPS; w++) {
            float4 v = partial[w][i][lane];
            sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
        }
        u32 at = first + i / 2 * 8 + lane / 4, row = i % 2 * 8 + lane % 4 * 2;
        if (at >= p.first_pair + p.n_pairs || row >= n_rows)
            continue;
        struct pair r = pair_find(p, at, p.mode);
        const f32 back = strip<F>::scale_back;
        pair_finish(p, r, before + row, sum.x * back, sum.z * back);
        if (row + 1 < n_rows)
            pair_finish(p, r, before + row + 1, sum.y * back, sum.w * back);
    }
}

#define GEMM_FEW(NAME, name, with)                                    \
    extern "C" __global__ void __launch_bounds__(FEW_WARPS * 32)      \
        gemm_few_##name(const __grid_constant__ struct gemm_params p) \
    {                                                                 \
        gemm_few<QUANT_##NAME, 2>(p);                                 \
    }
QUANT_HALF_FORMATS(GEMM_FEW, )
QUANT_BLOCK_FORMATS(GEMM_FEW, )
