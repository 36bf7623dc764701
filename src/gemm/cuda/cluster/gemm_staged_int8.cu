// gemm_staged_int8.cu - GEMM for Hopper with Q8_0 weights of one scale a row, and activations in int8 with a
// scale for each 64 or 128 columns: an encoder's products of many rows.
//
// Computes   out[row][n] = w_scale[n] * sum over blocks of columns of x_scale[row] * (int8 products) +
// bias[n], and with the activation, as int8 for the next product; as bf16 for attention; or with a residual
// added, in fp32.
//
//   cluster of 2 blocks             128 weight rows (N side)
//                                 +----------------------------------+
//   block 0: 128 rows (M side)    |  warpgroup 0, 1: 64 rows each    |     stage: 128 columns, and the rows'
//                                 +----------------------------------+            scales of both halves
//   block 1: the next rows        |  the same weights (multicast)    |
//                                 +----------------------------------+
//
// Tiles and pipeline are those of gemm_cluster.cuh; each of two warpgroups has half of a tile. Products and
// epilogue: int8_results.cuh. Products of few columns: gemm_stationary_int8.cu. What rounding costs, what
// bounds it, and the time: bench/results/2026-11-28-encoder.md.
#include "gemm/cuda/cluster/int8_results.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

// SCALE_COLUMNS: columns of a row that share a scale.
template <u32 MODE, bool PACKED, u32 SCALE_COLUMNS = INT8_CHUNK_COLUMNS> struct staged_int8_kernel {
    static constexpr u32 scale_columns = SCALE_COLUMNS;
    static constexpr bool ACTIVATED = MODE == EPILOGUE_ACTIVATED, packed = PACKED,
                          joins = PACKED && !ACTIVATED;
    static constexpr u32 N = STAGED_INT8_WEIGHTS, pairs = N / 2, rows = PACKED_TILE_ROWS,
                         couple = ROWS_CLUSTER, parts = 1, halves = 1, consumers = BOTH_THREADS,
                         column_bytes = 1, chunk_bytes = INT8_CHUNK_BYTES, rows_bytes = chunk_bytes,
                         n_boxes = ROWS_BOXES(N), box_bytes = N / n_boxes * STAGE_LINE,
                         stage_bytes = STAGED_INT8_STAGE_BYTES,
                         n_stages = STAGED_INT8_STAGES(ACTIVATED, !PACKED),
                         pitch = STAGED_INT8_PITCH(ACTIVATED, !PACKED);
    static_assert(rows_bytes % 1024 == 0 && stage_bytes % 1024 == 0, "weights are swizzled by their address");
};

template <class K> struct staged_products : int8_products<K> { // of a warpgroup
    u32 rows, scales;                                          // offsets in a stage
    u32 empty; // first empty barrier of the block in the cluster at which this lane arrives

    __device__ __forceinline__ void begin(const struct pipe<K> &pipe)
    {
        u32 warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
        rows = warp / 4 * GROUP_BYTES;
        scales = int8_scale_at(warp * WARP_ROWS + threadIdx.x % 32 / 4, 0);
        empty = place_in(threadIdx.x % K::couple, pipe.empty);
    }
    __device__ __forceinline__ void multiply_all(struct pipe<K> &pipe, u32 n_stages)
    {
        u32 last = pipe.at; // that was left

        int8_products<K>::multiply_all(
            n_stages,
            [&] {
                wait_for_stage(pipe.full + 8 * pipe.at, pipe.phase);
                u32 stage = pipe.stage();
                pipe.next();
                return int8_chunk{ stage + rows, stage + K::rows_bytes, stage + scales,
                                   PACKED_TILE_ROWS * 4 };
            },
            [&] {
                if (threadIdx.x % 32 < K::couple)
                    leave_stage_of(empty + 8 * last);
                last = last + 1 == K::n_stages ? 0 : last + 1;
            });
    }
};

template <class K>
static __device__ __forceinline__ void consume(const struct tiles_params &t,
                                               const struct cluster_scheduler &w, struct pipe<K> pipe,
                                               struct int8_results<K> results)
{
    struct staged_products<K> x;

    x.begin(pipe);
    wait_for_inputs();
    for (u32 tile = first_tile(); tile < w.n_tiles; tile = next_tile(tile)) {
        results.expect(place_of<K>(t.pairs, w, tile), 0);
        float2 own = results.load_factors(place_of<K>(t.pairs, w, tile));
        x.multiply_all(pipe, w.n_stages);
        results.share_factors(own);
        results.put(x.sums, place_of<K>(t.pairs, w, tile));
    }
    results.end();
    cluster_sync();
}

template <class K> static __device__ __forceinline__ void gemm_staged_int8(const struct cluster_params &c)
{
    run_staged<K, STAGED_INT8_FACTORS>(
        c, [](u32) {},
        [&](const struct cluster_scheduler &w, const struct pipe<K> &pipe, u32 warp, u32 factors,
            const struct staged_results<K> &results) {
            consume<K>(c.tiles, w, pipe, { results, factors + warp / 4 * (STAGED_INT8_FACTORS / 2) });
        });
}

#define GEMM_STAGED_INT8(name, ...)                                                                         \
    extern "C" __global__ void __launch_bounds__(HOPPER_THREADS(2), 1) __cluster_dims__(ROWS_CLUSTER, 1, 1) \
        gemm_staged_int8##name(const __grid_constant__ struct cluster_params c)                             \
    {                                                                                                       \
        gemm_staged_int8<staged_int8_kernel<__VA_ARGS__>>(c);                                               \
    }
GEMM_STAGED_INT8(, EPILOGUE_LINEAR, false, INT8_SCALE_COLUMNS)
GEMM_STAGED_INT8(_wide, EPILOGUE_LINEAR, false)
GEMM_STAGED_INT8(_packed, EPILOGUE_LINEAR, true)
GEMM_STAGED_INT8(_activated, EPILOGUE_ACTIVATED, true)
#endif
