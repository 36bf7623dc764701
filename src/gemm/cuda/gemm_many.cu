// gemm_many.cu - GEMM for many rows of activations on every architecture that lacks wgmma.
//
// Computes   out[row][n] = sum over k of x[row][k] * w[n][k], then the epilogue (epilogue.cuh).
//
//                    128 rows of activations (N side of mma.m16n8k16)
//                  +---------------------------+
//   64 pairs    8  |  warp 0: 16 weight rows   |      k advances by 128 columns a step
//   of weight   8  |  warp 1                   |      block: 8 warps, 256 threads
//   rows        .. |  ...                      |      grid: (row tiles, weight tiles)
//                  +---------------------------+
//
// Pipeline: five stages of 64 columns of activations in shared memory, filled by cp.async (multistage GEMM,
// as CUTLASS has it for Ampere); the next step's weights wait in registers.
// Operands: weights are dequantised to bf16 fragments in registers; activations are read by ldmatrix from
// tiles that lie in memory as shared memory wants them (PACKING_MMA in tiles of 128 rows).
// Epilogue: the sums pass through shared memory once, so that each epilogue is written once and stores are
// contiguous.
#include "gemm/cuda/fragments.cuh"
#include "gemm/cuda/epilogue.cuh"

enum {
    MANY_THREADS = 256,
    MANY_PAIRS = 64,
    MANY_ROWS = PACKED_TILE_ROWS,
    STAGES = 5,
    STAGE_BYTES = MANY_ROWS * 128
};

// 64 columns of activations: one tile of packed rows.
static __device__ __forceinline__ void fetch(const struct gemm_params &p, u32 shared, u32 stage)
{
    u32 n_stages = p.packed_cols / 64, to = shared + stage % STAGES * STAGE_BYTES + threadIdx.x * 16;
    const u8 *from = p.packed_mma + ((u64)blockIdx.x * n_stages + stage) * STAGE_BYTES + threadIdx.x * 16;

    if (stage < n_stages)
#pragma unroll
        for (u32 i = 0; i < STAGE_BYTES; i += MANY_THREADS * 16)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + i), "l"(from + i));
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <u32 F, u32 S>
static __device__ __forceinline__ void products(const struct prepared<F> (&w)[2], f32 (&d)[MANY_ROWS / 8][4],
                                                u32 tile)
{
    u32 a[4], lane = threadIdx.x & 31;

    strip_step<F, S>(w[0], a[0], a[2]);
    strip_step<F, S>(w[1], a[1], a[3]);
#pragma unroll
    for (u32 n = 0; n < MANY_ROWS / 16; n++) {
        u32 row = n * 16 + lane % 8 + lane / 16 * 8, c = S % 4 * 2 + lane / 8 % 2, b[4];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                     : "r"(tile + row * 128 + (c ^ row % 8) * 16));
        mma_16816(d[2 * n], a, b[0], b[1]);
        mma_16816(d[2 * n + 1], a, b[2], b[3]);
    }
}

// Half a step, 64 columns. The stage that was read last is free after the barrier.
template <u32 F, u32 H>
static __device__ __forceinline__ void half_step(const struct gemm_params &p,
                                                 const struct prepared<F> (&w)[2], f32 (&d)[MANY_ROWS / 8][4],
                                                 u32 shared, u32 stage)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
    __syncthreads();
    fetch(p, shared, stage + STAGES - 1);
    u32 tile = shared + stage % STAGES * STAGE_BYTES;
    products<F, 4 * H>(w, d, tile);
    products<F, 4 * H + 1>(w, d, tile);
    products<F, 4 * H + 2>(w, d, tile);
    products<F, 4 * H + 3>(w, d, tile);
}

template <u32 F>
static __device__ __forceinline__ void multiply(const struct gemm_params &p, f32 (&d)[MANY_ROWS / 8][4],
                                                u32 shared)
{
    u32 lane = threadIdx.x & 31, n_steps = p.packed_cols / 128;
    u32 at = min(blockIdx.y * MANY_PAIRS + threadIdx.x / 32 * 8 + lane / 4, p.n_pairs - 1) + p.first_pair;
    struct pair r = pair_find(p, at, p.mode);
    const struct weight_planes &wa = p.w[r.matrix[0]], &wb = p.w[r.matrix[1]];
    struct strip<F> next[2];
    struct prepared<F> now[2];

    for (u32 s = 0; s < STAGES - 1; s++)
        fetch(p, shared, s);
    strip_load<F>(next[0], wa, r.row[0], lane % 4);
    strip_load<F>(next[1], wb, r.row[1], lane % 4);
    for (u32 s = 0; s < n_steps; s++) {
        strip_prepare<F>(now[0], next[0]);
        strip_prepare<F>(now[1], next[1]);
        strip_load<F>(next[0], wa, r.row[0], (s + 1) * 4 + lane % 4);
        strip_load<F>(next[1], wb, r.row[1], (s + 1) * 4 + lane % 4);
        half_step<F, 0>(p, now, d, shared, 2 * s);
        half_step<F, 1>(p, now, d, shared, 2 * s + 1);
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
}

// [row][pair] of the block, two sums each; 68 pairs a row avoid bank conflicts.
template <u32 F>
static __device__ __forceinline__ void finish(const struct gemm_params &p, f32 (&d)[MANY_ROWS / 8][4],
                                              float2 *sums, u32 n_rows)
{
    constexpr u32 stride = MANY_PAIRS + 4;
    u32 lane = threadIdx.x & 31, pair = threadIdx.x / 32 * 8 + lane / 4, first_row = blockIdx.x * MANY_ROWS;

    __syncthreads();
#pragma unroll
    for (u32 n = 0; n < MANY_ROWS / 8; n++) {
        u32 row = n * 8 + lane % 4 * 2;
        sums[row * stride + pair] = make_float2(d[n][0], d[n][2]);
        sums[(row + 1) * stride + pair] = make_float2(d[n][1], d[n][3]);
    }
    __syncthreads();
    pair = threadIdx.x % MANY_PAIRS;
    u32 at = blockIdx.y * MANY_PAIRS + pair;
    if (at >= p.n_pairs)
        return;
    struct pair r = pair_find(p, p.first_pair + at, p.mode);
    constexpr u32 apart = MANY_THREADS / MANY_PAIRS, batch = 8; // rows loaded at a time, in eights
    for (u32 row = threadIdx.x / MANY_PAIRS; row < MANY_ROWS && first_row + row < n_rows;
         row += batch * apart) {
        struct pair_inputs in[batch];
#pragma unroll
        for (u32 k = 0; k < batch; k++)
            in[k] = pair_load(p, r, min(first_row + row + k * apart, n_rows - 1), p.mode);
#pragma unroll
        for (u32 k = 0; k < batch; k++) {
            u32 at_row = row + k * apart;
            if (at_row >= MANY_ROWS || first_row + at_row >= n_rows)
                break;
            float2 v = sums[at_row * stride + pair];
            pair_epilogue_store(p, r, first_row + at_row, in[k],
                                make_float2(v.x * strip<F>::scale_back, v.y * strip<F>::scale_back), p.mode);
        }
    }
}

template <u32 F> static __device__ __forceinline__ void gemm_many(const struct gemm_params &p)
{
    extern __shared__ __align__(128) unsigned char shared[];
    f32 d[MANY_ROWS / 8][4] = {};

    wait_for_inputs();
    u32 n_rows = n_rows_of(p.step, p.rows);
    if (blockIdx.x * MANY_ROWS >= n_rows)
        return;
    multiply<F>(p, d, (u32)__cvta_generic_to_shared(shared));
    finish<F>(p, d, (float2 *)shared, n_rows);
}

#define GEMM_MANY(NAME, name, with)                                    \
    extern "C" __global__ void __launch_bounds__(MANY_THREADS, 1)      \
        gemm_many_##name(const __grid_constant__ struct gemm_params p) \
    {                                                                  \
        gemm_many<QUANT_##NAME>(p);                                    \
    }
QUANT_HALF_FORMATS(GEMM_MANY, )
QUANT_BLOCK_FORMATS(GEMM_MANY, )
