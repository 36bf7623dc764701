// gemm_tma.cu - GEMM for Hopper with bf16 weights: TMA tiles, wgmma.
//
// Computes   out[row][n] = sum over k of x[row][k] * w[n][k], then the epilogue (epilogue.cuh).
//
//                          8 to 256 rows of activations (N side)
//                       +----------------------------------------+
//   1 to 3 groups   32  | warpgroup 0: 64 weight rows (M side)   |     stage: 64 columns of activations and
//   of of 32 pairs     32  | warpgroup 1                            |            weights
//                   32  | warpgroup 2                            |     persistent: one block an SM
//                       +----------------------------------------+
//
// Pipeline: warp specialisation. One elected producer thread keeps 2 to 13 stages of shared memory full,
// activations by bulk copies as they lie packed, weights by TMA tiles; the first weights are requested before
// the activations are ready. Consumer warpgroups wait only at the stages' full barriers, so that one stores
// its results while another multiplies. Tile scheduler: stream-K (Osama et al., 2023; stream_k.cuh): whole
// tiles in waves over the SMs, the tiles of the last, partial wave split along k. Epilogue: any; gate and up
// can be written packed for the next product as well (epilogue_pack.cuh).
#include "gemm/cuda/hopper/hopper.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

enum { GROUP_WEIGHTS = 8192 };

// A kernel of N_GROUPS consumer warpgroups, 32 pairs each. plan_wgmma.c computes the same number of stages.
template <u32 N_ROWS, u32 N_GROUPS> struct tma_kernel {
    static constexpr u32 F = QUANT_BF16, ROWS = N_ROWS, GROUPS = N_GROUPS;
    static constexpr u32 consumers = GROUPS * 128, pairs = GROUPS * GROUP_PAIRS;
    static constexpr bool TILES = true, FEW = ROWS <= 64;
    static constexpr u32 chunk_bytes = (ROWS < PACKED_TILE_ROWS ? ROWS : PACKED_TILE_ROWS) * 128,
                         weights_bytes = GROUPS * GROUP_WEIGHTS, stage_bytes = weights_bytes + ROWS * 128,
                         fit = HOPPER_TILES_ROOM / stage_bytes,
                         n_stages = fit < HOPPER_MOST_TILE_STAGES ? fit : HOPPER_MOST_TILE_STAGES;
    // Stages of weights requested before the rows; more of them would delay many rows.
    static constexpr u32 prefetched = FEW ? n_stages : 2;
    // The share of busy blocks, in percent, from which on the others may idle: splitting tiles takes time
    // too, and where blocks have unlike parts, the first of a tile stores all of its many rows.
    static constexpr u32 full = GROUPS == 1 || (GROUPS == 2 && !FEW) ? 70 : 78;
};

// The source of the next stage's copies.
template <class K> struct tile_source : rows_source<K> {
    u32 matrix[K::GROUPS], eight[K::GROUPS], head[K::GROUPS]; // the first pair of each warpgroup

    __device__ __forceinline__ void find_pairs(const struct tile_scheduler &w, const struct tiles_params &t)
    {
        const struct gemm_params &p = t.pairs;
        if (!this->left)
            return;
#pragma unroll
        for (u32 group = 0; group < K::GROUPS; group++) {
            u32 m = 0, pair = p.first_pair + min(w.first_pair<K>(this->stream_unit) + group * GROUP_PAIRS,
                                                 (p.n_pairs - 1) / 32 * 32);
            if (p.mode >= EPILOGUE_ROPE_STORE)
                for (; m < 2 && pair >= p.w[m].n_rows / 2; m++)
                    pair -= p.w[m].n_rows / 2;
            matrix[group] = m;
            eight[group] = pair / 8 % t.eights[m];
            head[group] = pair / 8 / t.eights[m];
        }
    }
    __device__ __forceinline__ void first(const struct tiles_params &t, const struct tile_scheduler &w)
    {
        this->left = w.first(this->stream_unit);
        this->begin(t.pairs, w);
        find_pairs(w, t);
    }
    __device__ __forceinline__ void next(const struct tiles_params &t, const struct tile_scheduler &w)
    {
        if (!rows_source<K>::next(t.pairs, w))
            find_pairs(w, t);
    }
    __device__ __forceinline__ void copy_weights(const struct tiles_params &t, u32 to, u32 full,
                                                 u64 policy) const
    {
#pragma unroll
        for (u32 group = 0; group < K::GROUPS; group++) {
            const u32 at[3] = { this->stage * 64, eight[group], head[group] };
            box_copy(to + group * GROUP_WEIGHTS, &t.w[matrix[group]], full, at, policy);
        }
    }
};

template <class K>
static __device__ __forceinline__ void produce(const struct tiles_params &t, struct pipe<K> pipe,
                                               const struct tile_scheduler &w)
{
    u64 policy = cache_policy(w.n_row_tiles == 1);
    struct tile_source<K> from;

    from.first(t, w);
    struct tile_source<K> weights = from;
    auto prefetched = pipe;
    for (u32 i = 0; i < K::prefetched && weights.left; i++, weights.next(t, w), prefetched.next()) {
        expect_bytes(prefetched.full + 8 * prefetched.at, K::weights_bytes + weights.bytes);
        weights.copy_weights(t, prefetched.stage(), prefetched.full + 8 * prefetched.at, policy);
    }
    wait_for_inputs();
    for (u32 i = 0; from.left; i++, from.next(t, w), pipe.next()) {
        u32 full = pipe.full + 8 * pipe.at;
        if (i >= K::prefetched) {
            wait_for_stage(pipe.empty + 8 * pipe.at, pipe.phase ^ 1);
            expect_bytes(full, K::weights_bytes + from.bytes);
            from.copy_weights(t, pipe.stage(), full, policy);
        }
        from.copy(pipe.stage() + K::weights_bytes, full);
    }
}

// A stage's 64 columns. The products just started continue while the next are prepared; earlier ones have
// finished.
template <class K>
static __device__ __forceinline__ void multiply(struct hopper_sums<K> &x, struct pipe<K> &pipe, u32 warpgroup)
{
    wait_for_stage(pipe.full + 8 * pipe.at, pipe.phase);
    u64 weights = tile_descriptor(pipe.stage() + warpgroup * GROUP_WEIGHTS),
        rows = tile_descriptor(pipe.stage() + K::weights_bytes);
    wgmma_fence();
#pragma unroll
    for (u32 k = 0; k < 4; k++)
        wgmma(x.d, weights + NEXT_COLUMNS * k, rows + NEXT_COLUMNS * k);
    wgmma_order();
    x.leave_before(pipe);
    x.before = pipe.at;
    pipe.next();
}

template <class K>
static __device__ __forceinline__ void consume(const struct tiles_params &t, const struct tile_scheduler &w,
                                               struct pipe<K> pipe)
{
    const struct gemm_params &p = t.pairs;
    u32 swapped = t.swapped;
    struct hopper_sums<K> x;
    struct stream_unit s;

    wait_for_inputs();
    for (bool left = w.first(s); left; left = w.next(s)) {
        struct part_epilogue<K> end(p, w, s);
        end.find_now(p);
        u32 warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
        x.clear();
        for (u32 step = s.begin; step < s.end; step++) {
            multiply(x, pipe, warpgroup);
            multiply(x, pipe, warpgroup);
        }
        x.finish(pipe);
        end.run(p, w, x.d, swapped);
    }
}

template <class K> static __device__ __forceinline__ void gemm_tma(const struct tiles_params &t)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    struct pipe<K> pipe = {
        0
    };
    struct tile_scheduler &w = *(struct tile_scheduler *)(shared + K::n_stages * (K::stage_bytes + 16));
    bool produces = __shfl_sync(~0u, threadIdx.x / 32, 0) == K::consumers / 32;

    pipe.data = shared_address(shared);
    pipe.full = pipe.data + K::n_stages * K::stage_bytes;
    pipe.empty = pipe.full + 8 * K::n_stages;
    if (produces && elect_one()) {
        prefetch_view(&t.w[0]);
        w = tile_scheduler_of<K>(
            t.pairs); // of the number of rows, which is older than any launch of this step
        for (u32 i = 0; i < K::n_stages; i++) {
            barrier_begin(pipe.full + 8 * i, 1);
            barrier_begin(pipe.empty + 8 * i, K::consumers / 32);
        }
        show_barriers();
    }
    __syncthreads();
    if (threadIdx.x >= K::consumers) {
        if constexpr (!K::FEW)
            asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(K::GROUPS == 3 ? 56 : 40));
        if (produces && elect_one())
            produce<K>(t, pipe, w);
        else
            wait_for_inputs();
    } else {
        if constexpr (!K::FEW)
            asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(K::GROUPS == 3 ? 152 : 232));
        consume<K>(t, w, pipe);
    }
}

#define GEMM_TMA(name, GROUPS, ROWS)                                         \
    extern "C" __global__ void __launch_bounds__(                            \
        ROWS <= 64 ? HOPPER_FEW_THREADS(GROUPS) : HOPPER_THREADS(GROUPS), 1) \
        gemm_tma_##name(const __grid_constant__ struct tiles_params t)       \
    {                                                                        \
        gemm_tma<tma_kernel<ROWS, GROUPS>>(t);                               \
    }
GEMM_TMA(8, 2, 8)
GEMM_TMA(16, 2, 16)
GEMM_TMA(32, 2, 32)
GEMM_TMA(64, 2, 64)
GEMM_TMA(64_half, 1, 64)
GEMM_TMA(128, 2, 128)
GEMM_TMA(128_wide, 3, 128)
GEMM_TMA(256, 2, 256)
#endif
