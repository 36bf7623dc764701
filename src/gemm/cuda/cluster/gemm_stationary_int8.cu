// gemm_stationary_int8.cu - gemm_staged_int8 for products of few columns: a block keeps its weights in shared
// memory, and rows stream past them.
//
//   cluster of 2 blocks            block 0: 128 weight rows      block 1: the next 128
//   warpgroup 0: 64 rows     ->    ring 0                        ring 0            each stage (64 rows, 128
//   warpgroup 1: 64 others   ->    ring 1                        ring 1            columns) to both blocks
//
// A tile of gemm_staged_int8 has 128 rows for its 128 weight rows, and both are loaded from L2 for each tile.
// Here weights are loaded once, and the cluster multiplies each stage by 256 weight rows. Each warpgroup has
// a ring and a producer warp of its own, and never waits for the other. Sums, epilogues and bits are those of
// gemm_staged_int8 (int8_results.cuh). Columns: up to STATIONARY_CHUNKS * 128. Time:
// bench/results/2026-11-28-encoder.md.
#include "gemm/cuda/cluster/int8_results.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

enum {
    RING_ROWS = PACKED_TILE_ROWS / 2,
    ROWS_BYTES = RING_ROWS * INT8_CHUNK_COLUMNS,
    SCALES_BYTES = RING_ROWS * 4
};

template <u32 MODE, bool PACKED> struct stationary_int8_kernel {
    static constexpr u32 scale_columns = PACKED ? INT8_CHUNK_COLUMNS : INT8_SCALE_COLUMNS;
    static constexpr bool ACTIVATED = MODE == EPILOGUE_ACTIVATED, packed = PACKED,
                          joins = PACKED && !ACTIVATED;
    static constexpr u32 N = STAGED_INT8_WEIGHTS, column_bytes = 1, couple = ROWS_CLUSTER,
                         stage_bytes = STATIONARY_STAGE_BYTES,
                         n_stages = STATIONARY_STAGES(ACTIVATED, !PACKED),
                         n_scales = INT8_CHUNK_COLUMNS / scale_columns, // of a row in a stage
        pitch = STAGED_INT8_PITCH(ACTIVATED, !PACKED);
    static_assert(stage_bytes % 1024 == 0, "rows are swizzled by their address");
};

// What a block multiplies: some tiles of 64 rows, by 128 weight rows.
struct stationary_share {
    u32 first, step, end; // tiles
    u32 n_rows, n_chunks, column;
};
static __device__ __forceinline__ struct stationary_share share_of(const struct cluster_params &c)
{
    const struct gemm_params &p = c.tiles.pairs;
    u32 n_rows = min(n_rows_of(p.step, p.rows), c.end_row), cluster = blockIdx.x / ROWS_CLUSTER,
        n_wide = p.n_pairs / STAGED_INT8_WEIGHTS, // of 128 pairs, which a cluster has
        step = gridDim.x / ROWS_CLUSTER / n_wide;

    return { cluster / n_wide,
             step,
             (n_rows + RING_ROWS - 1) / RING_ROWS,
             n_rows,
             p.packed_cols / INT8_CHUNK_COLUMNS,
             (cluster % n_wide * ROWS_CLUSTER + blockIdx.x % ROWS_CLUSTER) * STAGED_INT8_WEIGHTS };
}

static __device__ __forceinline__ void bulk_copy_to_both(u32 to, const u8 *from, u32 bytes, u32 full)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
                 "[%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(full), "h"((u16)((1 << ROWS_CLUSTER) - 1))
                 : "memory");
}

// Blocks copy stages in turn.
template <class K>
static __device__ __forceinline__ void
produce_rows(const struct cluster_params &c, const struct stationary_share &w, struct pipe<K> pipe, u32 group)
{
    u32 turn = blockIdx.x % ROWS_CLUSTER;

    wait_for_inputs();
    for (u32 tile = w.first + group * w.step; tile < w.end; tile += 2 * w.step) {
        const u8 *chunk =
            c.tiles.pairs.packed_int8 + int8_chunk_at(tile * RING_ROWS, 0, c.tiles.pairs.packed_cols);
        u32 half = tile % 2;
        for (u32 i = 0; i < w.n_chunks; i++, turn++, chunk += INT8_CHUNK_BYTES, pipe.next()) {
            u32 full = pipe.full + 8 * pipe.at;
            wait_for_stage(pipe.empty + 8 * pipe.at, pipe.phase ^ 1);
            expect_bytes(full, ROWS_BYTES + K::n_scales * SCALES_BYTES);
            if (turn % ROWS_CLUSTER != 0)
                continue;
            bulk_copy_to_both(pipe.stage(), chunk + half * ROWS_BYTES, ROWS_BYTES, full);
            for (u32 s = 0; s < K::n_scales; s++)
                bulk_copy_to_both(pipe.stage() + ROWS_BYTES + s * SCALES_BYTES,
                                  chunk + INT8_CHUNK_NUMBERS + (2 * s + half) * SCALES_BYTES, SCALES_BYTES,
                                  full);
        }
    }
}

template <class K> struct stationary_products : int8_products<K> { // of a warpgroup
    u32 weights, weights_full;                                     // in shared memory
    u32 scales;                                                    // offset in a stage
    u32 empty; // first empty barrier of the block in the cluster at which this lane arrives

    __device__ __forceinline__ void begin(const struct pipe<K> &pipe, u32 warp)
    {
        scales = ROWS_BYTES + (warp % 4 * WARP_ROWS + threadIdx.x % 32 / 4) * 4;
        empty = place_in(threadIdx.x % K::couple, pipe.empty);
    }
    __device__ __forceinline__ void multiply_all(struct pipe<K> &pipe, u32 n_chunks)
    {
        u32 last = pipe.at, i = 0; // the stage that was left; the chunk

        int8_products<K>::multiply_all(
            n_chunks,
            [&] {
                wait_for_stage(weights_full + 8 * i, 0);
                wait_for_stage(pipe.full + 8 * pipe.at, pipe.phase);
                u32 stage = pipe.stage();
                pipe.next();
                return int8_chunk{ stage, weights + i++ * STATIONARY_CHUNK_BYTES, stage + scales,
                                   SCALES_BYTES };
            },
            [&] {
                if (threadIdx.x % 32 < K::couple)
                    leave_stage_of(empty + 8 * last);
                last = last + 1 == K::n_stages ? 0 : last + 1;
            });
    }
};

template <class K>
static __device__ __forceinline__ void consume_rows(const struct stationary_share &w, struct pipe<K> pipe,
                                                    u32 warp, struct stationary_products<K> &x,
                                                    struct int8_results<K> results)
{
    u32 pair = w.column / 2;
    struct cluster_place at = { 0, w.n_rows, pair + threadIdx.x % 4 * 2, pair + STAGED_INT8_WEIGHTS / 2 };

    x.begin(pipe, warp);
    results.share_factors(results.load_factors(at));
    wait_for_inputs();
    for (u32 tile = w.first + warp / 4 * w.step; tile < w.end; tile += 2 * w.step) {
        at.row = tile * RING_ROWS + warp % 4 * WARP_ROWS + threadIdx.x % 32 / 4;
        results.expect(at, 0);
        x.multiply_all(pipe, w.n_chunks);
        results.put(x.sums, at);
    }
    results.end();
}

// All weights of a block.
template <class K>
static __device__ __forceinline__ void copy_weights(const struct cluster_params &c,
                                                    const struct stationary_share &w, u32 to, u32 full)
{
    u32 of_matrix = 2 * c.matrix_pairs, matrix = K::joins ? w.column / of_matrix : 0,
        eight = (w.column - matrix * of_matrix) / 8, n_boxes = ROWS_BOXES(STAGED_INT8_WEIGHTS);
    u64 policy = cache_policy(false);

    for (u32 i = 0; i < w.n_chunks; i++) {
        expect_bytes(full + 8 * i, STATIONARY_CHUNK_BYTES);
        for (u32 box = 0; box < n_boxes; box++) {
            const u32 at[3] = { i * STAGE_COLUMNS, eight + box * (STAGED_INT8_WEIGHTS / 8 / n_boxes), 0 };
            box_copy(to + i * STATIONARY_CHUNK_BYTES + box * (STATIONARY_CHUNK_BYTES / n_boxes),
                     &c.tiles.w[matrix], full + 8 * i, at, policy);
        }
    }
}

// Shared memory: weights, two rings, the warps' rooms, factors of both warpgroups, barriers.
template <class K> static __device__ __forceinline__ void gemm_stationary_int8(const struct cluster_params &c)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    const struct stationary_share w = share_of(c);
    u32 warp = __shfl_sync(~0u, threadIdx.x / 32, 0), producer = warp - STAGED_WARPS,
        group = warp < STAGED_WARPS ? warp / 4 : producer % 2;
    u32 weights = shared_address(shared), rings = weights + STATIONARY_CHUNKS * STATIONARY_CHUNK_BYTES,
        rooms = rings + 2 * K::n_stages * K::stage_bytes,
        factors = rooms + STAGED_WARPS * WARP_ROWS * K::pitch, loaded = factors + STAGED_INT8_FACTORS,
        weights_full = loaded + 8 * STAGED_WARPS, stages_full = weights_full + 8 * STATIONARY_CHUNKS;
    struct pipe<K> pipe = {
        0
    };

    pipe.data = rings + group * K::n_stages * K::stage_bytes;
    pipe.full = stages_full + group * 16 * K::n_stages;
    pipe.empty = pipe.full + 8 * K::n_stages;
    if (warp >= STAGED_WARPS && producer < 2 && elect_one()) {
        for (u32 i = 0; i < K::n_stages; i++) {
            barrier_begin(pipe.full + 8 * i, 1);
            barrier_begin(pipe.empty + 8 * i, K::couple * 4);
        }
        for (u32 i = producer; i < STAGED_WARPS + STATIONARY_CHUNKS; i += 2) // of rooms, then of weights
            barrier_begin(loaded + 8 * i, 1);
        show_barriers();
    }
    cluster_sync();
    if (warp >= STAGED_WARPS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (producer == 0 && elect_one())
            copy_weights<K>(c, w, weights, weights_full);
        if (producer < 2 && elect_one())
            produce_rows<K>(c, w, pipe, group);
        else
            wait_for_inputs();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        struct stationary_products<K> x;
        x.weights = weights;
        x.weights_full = weights_full;
        consume_rows<K>(w, pipe, warp, x,
                        { { c, c.tiles, rooms + warp * WARP_ROWS * K::pitch, loaded + 8 * warp, 0 },
                          factors + group * (STAGED_INT8_FACTORS / 2) });
    }
    cluster_sync();
}

#define GEMM_STATIONARY_INT8(name, MODE, PACKED)                                                            \
    extern "C" __global__ void __launch_bounds__(HOPPER_THREADS(2), 1) __cluster_dims__(ROWS_CLUSTER, 1, 1) \
        gemm_stationary_int8##name(const __grid_constant__ struct cluster_params c)                         \
    {                                                                                                       \
        gemm_stationary_int8<stationary_int8_kernel<MODE, PACKED>>(c);                                      \
    }
GEMM_STATIONARY_INT8(, EPILOGUE_LINEAR, false)
GEMM_STATIONARY_INT8(_packed, EPILOGUE_LINEAR, true)
GEMM_STATIONARY_INT8(_activated, EPILOGUE_ACTIVATED, true)
#endif
