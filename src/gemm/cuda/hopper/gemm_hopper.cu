// gemm_hopper.cu - GEMM for Hopper by wgmma with weights of any format but TMA's bf16: dequantised into
// registers.
//
// Computes   out[row][n] = sum over k of x[row][k] * w[n][k], then the epilogue (epilogue.cuh).
//
//                          32 to 256 rows of activations (N side)
//                       +----------------------------------------+
//   1 to 4 groups   32  | warpgroup 0: 64 weight rows (M side)   |     stage: 128 columns of activations and
//   of of 32 pairs     32  | warpgroup 1                            |            weights as they lie in their
//   planes
//                   ..  | ...                                    |     persistent: one block an SM
//                       +----------------------------------------+
//
// Pipeline: warp specialisation. A producer warpgroup keeps up to 8 stages of shared memory full: weights by
// short copies of all its lanes (code_stages.cuh), activations by bulk copies as they lie packed. All stages'
// first weights are requested before the activations are ready. A consumer warp reads its weights from the
// stage, and dequantises four fragments while four products run; with up to 64 rows, four warpgroups hide
// each other's waits. Tile scheduler: stream-K (Osama et al., 2023; stream_k.cuh): whole tiles in waves over
// the SMs, the tiles of the last, partial wave split along k. Epilogue: any; a result can be written packed
// for the next product as well (epilogue_pack.cuh). Other architectures' images hold no such kernel, and
// columns that are no multiple of 64 have no copies of four bytes; gemm_plan.c then takes gemm_many.
#include "gemm/cuda/hopper/code_stages.cuh"
#include "gemm/cuda/hopper/hopper.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

// plan_wgmma.c computes the same number of stages.
template <u32 FORMAT, u32 N_ROWS, u32 N_GROUPS> struct hopper_kernel {
    static constexpr u32 F = FORMAT, ROWS = N_ROWS, GROUPS = N_GROUPS;
    static constexpr u32 consumers = GROUPS * 128, pairs = GROUPS * GROUP_PAIRS;
    static constexpr bool TILES = false, FEW = ROWS <= 64;
    static constexpr u32 chunk_bytes = (ROWS < PACKED_TILE_ROWS ? ROWS : PACKED_TILE_ROWS) * 128,
                         rows_bytes = ROWS * 256,
                         stage_bytes = HOPPER_STAGE(ROWS, GROUPS, layout_part_bytes(F)),
                         fit = HOPPER_ROOM / stage_bytes,
                         n_stages = fit < HOPPER_MOST_STAGES ? fit : HOPPER_MOST_STAGES;
    static constexpr u32 full = GROUPS == 1 || (GROUPS == 2 && !FEW) ? 70 : 78;
    // Registers of a producer's and of a consumer's thread: together what the block has.
    static constexpr u32 producer_registers = GROUPS == 4   ? 32
                                              : GROUPS == 2 ? 40
                                                            : 56,
                         consumer_registers = GROUPS == 4   ? 112
                                              : GROUPS == 3 ? 152
                                              : GROUPS == 2 ? 232
                                                            : 240;
};

template <class K>
static __device__ __forceinline__ void produce(const struct gemm_params &p, struct pipe<K> pipe,
                                               const struct tile_scheduler &w)
{
    u64 policy = cache_policy(w.n_row_tiles == 1);
    struct code_source<K> weights;
    struct rows_source<K> rows;
    bool first_warp = __shfl_sync(~0u, threadIdx.x / 32, 0) == K::consumers / 32;
    auto ahead = pipe;
    u32 n_ahead = 0;

    weights.first(p, w);
    for (; n_ahead < K::n_stages && weights.left; n_ahead++, weights.next(p, w), ahead.next())
        weights.copy(p, ahead.stage() + K::rows_bytes, ahead.full + 8 * ahead.at, policy);
    wait_for_inputs();
    rows.left = w.first(rows.stream_unit);
    rows.begin(p, w);
    for (u32 i = 0; rows.left; i++, pipe.next()) {
        u32 full = pipe.full + 8 * pipe.at;
        if (i >= n_ahead) {
            wait_for_stage(pipe.empty + 8 * pipe.at, pipe.phase ^ 1);
            weights.copy(p, pipe.stage() + K::rows_bytes, full, policy);
            weights.next(p, w);
        }
        if (first_warp && elect_one())
            expect_bytes(full, 2 * rows.bytes);
#pragma unroll
        for (u32 half = 0; half < 2; half++) { // a part has whole steps
            if (first_warp && elect_one())
                rows.copy(pipe.stage() + half * K::ROWS * 128, full);
            rows.next(p, w);
        }
    }
}

// 64 columns' fragments, and their products.
template <class K, u32 H>
static __device__ __forceinline__ void
multiply_half(struct hopper_sums<K> &x, const struct prepared<K::F> (&now)[2], u32 (&a)[4][4], u64 rows)
{
    fragment<K::F, 4 * H>(now, a[0]);
    fragment<K::F, 4 * H + 1>(now, a[1]);
    fragment<K::F, 4 * H + 2>(now, a[2]);
    fragment<K::F, 4 * H + 3>(now, a[3]);
    wgmma_fence(a);
#pragma unroll
    for (u32 k = 0; k < 4; k++)
        wgmma(x.d, a[k], rows + NEXT_COLUMNS * k);
    wgmma_order();
}

template <class K>
static __device__ __forceinline__ void multiply_part(const u8 *shared, const struct stream_unit &s,
                                                     const struct code_place<K> &place,
                                                     struct hopper_sums<K> &x, struct pipe<K> &pipe)
{
    x.clear();
    for (u32 step = s.begin; step < s.end; step++) {
        struct prepared<K::F> now[2];
        u32 a[2][4][4];

        u32 at = __shfl_sync(~0u, pipe.at, 0); // so that addresses are computed once a warp
        wait_for_stage(pipe.full + 8 * at, pipe.phase);
        place.load(shared + at * K::stage_bytes + K::rows_bytes, now);
        u64 rows = tile_descriptor(pipe.data + at * K::stage_bytes);
        multiply_half<K, 0>(x, now, a[0], rows);
        x.leave_before(pipe); // the stage before has been multiplied
        multiply_half<K, 1>(x, now, a[1], rows + K::ROWS * 128 / 16);
        x.before = at;
        pipe.next();
    }
    x.finish(pipe);
}

template <class K>
static __device__ __forceinline__ void consume(const struct gemm_params &p, const struct tile_scheduler &w,
                                               struct pipe<K> pipe, const u8 *shared)
{
    struct hopper_sums<K> x;
    struct code_place<K> place;
    struct stream_unit s;

    wait_for_inputs();
    for (bool left = w.first(s); left; left = w.next(s)) {
        multiply_part(shared, s, place, x, pipe);
        struct part_epilogue<K> end(p, w, s);
        end.run(p, w, x.d, 0);
    }
}

template <class K> static __device__ __forceinline__ void gemm_hopper(const struct gemm_params &p)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    struct pipe<K> pipe = {
        0
    };
    struct tile_scheduler &w = *(struct tile_scheduler *)(shared + K::n_stages * (K::stage_bytes + 16));

    pipe.data = shared_address(shared);
    pipe.full = pipe.data + K::n_stages * K::stage_bytes;
    pipe.empty = pipe.full + 8 * K::n_stages;
    if (__shfl_sync(~0u, threadIdx.x / 32, 0) == K::consumers / 32 && elect_one()) {
        w = tile_scheduler_of<K>(p); // of the number of rows, which is older than any launch of this step
        for (u32 i = 0; i < K::n_stages; i++) {
            barrier_begin(pipe.full + 8 * i, 128 + 1); // each producer thread's weights, and the rows
            barrier_begin(pipe.empty + 8 * i, K::consumers / 32);
        }
        show_barriers();
    }
    __syncthreads();
    if (threadIdx.x >= K::consumers) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(K::producer_registers));
        produce<K>(p, pipe, w);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(K::consumer_registers));
        consume<K>(p, w, pipe, shared);
    }
}

#define GEMM_HOPPER(name, F, ROWS, GROUPS)                                  \
    extern "C" __global__ void __launch_bounds__(HOPPER_THREADS(GROUPS), 1) \
        gemm_hopper_##name(const __grid_constant__ struct gemm_params p)    \
    {                                                                       \
        gemm_hopper<hopper_kernel<F, ROWS, GROUPS>>(p);                     \
    }
#define GEMM_HOPPER_SIZES(NAME, name, with)          \
    GEMM_HOPPER(32_##name, QUANT_##NAME, 32, 2)      \
    GEMM_HOPPER(64_##name, QUANT_##NAME, 64, 1)      \
    GEMM_HOPPER(64_wide_##name, QUANT_##NAME, 64, 4) \
    GEMM_HOPPER(128_##name, QUANT_##NAME, 128, 2)    \
    GEMM_HOPPER(256_##name, QUANT_##NAME, 256, 2)
QUANT_HALF_FORMATS(GEMM_HOPPER_SIZES, )
QUANT_BLOCK_FORMATS(GEMM_HOPPER_SIZES, )
#endif
