// gemm_cluster.cuh - what gemm_cluster.cu and gemm_staged.cu share: which tile a cluster takes, the producer
// of its stages, the products, and the order in which two warpgroups take whole tiles. The pictures are in
// gemm_cluster.cu.
//
// K, a kernel's constants: N weight rows of a tile, rows, halves of 64 rows of a warpgroup, couple (blocks
// with the same weights), parts (of the columns, which a cluster splits), consumers (threads of a tile),
// pairs, n_boxes, box_bytes, rows_bytes, stage_bytes, n_stages, joins (whether several matrices are one
// product), column_bytes (2: bf16; 1: int8), chunk_bytes (of packed rows, with their scales).
#pragma once
#include "gemm/cuda/cluster/cluster_params.h"
#include "gemm/cuda/wgmma.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

enum {
    STAGE_COLUMNS = 64, // of bf16; of int8 twice as many
    STAGE_LINE = STAGE_COLUMNS * 2,
    CHUNK_BYTES = PACKED_TILE_ROWS * STAGE_LINE,
    GROUP_BYTES = CHUNK_BYTES / 2,
    EARLY = 2,
    BOTH_THREADS = 256
};

// The tiles of all clusters, in turn. Neighbours have the same weights, which are then read from memory once,
// or the same rows (gemm_rows_first).
struct cluster_scheduler {
    u32 first_row, n_rows, n_row_tiles; // n_rows: where the launch's rows end
    u32 n_stages, n_tiles;              // stages of a block, tiles of a cluster
    u32 n_pair_tiles;                   // 0: neighbours have the same weights
};

template <class K>
static __device__ __forceinline__ struct cluster_scheduler tile_scheduler_of(const struct cluster_params &c)
{
    const struct gemm_params &p = c.tiles.pairs;
    u32 rows = K::couple * K::rows, n_pair_tiles = (p.n_pairs + K::pairs - 1) / K::pairs,
        n_rows = min(n_rows_of(p.step, p.rows), c.end_row), // older than any launch of this step
        n_row_tiles = n_rows > c.first_row ? (n_rows - c.first_row + rows - 1) / rows : 0;

    return { c.first_row,
             n_rows,
             n_row_tiles,
             p.packed_cols * K::column_bytes / STAGE_LINE / K::parts,
             n_row_tiles * n_pair_tiles,
             gemm_rows_first(n_rows, 2 * p.n_pairs, p.packed_cols) ? n_pair_tiles : 0 };
}
template <class K> static __device__ __forceinline__ u32 in_couple()
{
    return blockIdx.x % K::couple;
}
template <class K> static __device__ __forceinline__ u32 part() // of the columns
{
    return blockIdx.x % K::parts;
}
static __device__ __forceinline__ u32 first_tile()
{
    return blockIdx.x / ROWS_CLUSTER;
}
static __device__ __forceinline__ u32 next_tile(u32 tile)
{
    return tile + gridDim.x / ROWS_CLUSTER;
}
template <class K>
static __device__ __forceinline__ u32 first_row(const struct cluster_scheduler &w, u32 tile)
{
    u32 at = w.n_pair_tiles ? tile / w.n_pair_tiles : tile % w.n_row_tiles;
    return w.first_row + (at * K::couple + in_couple<K>()) * K::rows;
}
template <class K>
static __device__ __forceinline__ u32 first_pair(const struct cluster_scheduler &w, u32 tile)
{
    return (w.n_pair_tiles ? tile % w.n_pair_tiles : tile / w.n_row_tiles) * K::pairs;
}

// The source of the next stage's copies.
template <class K> struct cluster_source {
    const u8 *rows; // rows that do not exist are read and multiplied like any, and ignored
    u32 tile, stage, end, matrix, four; // four: the tile's first four pairs

    __device__ __forceinline__ void begin(const struct cluster_params &c, const struct cluster_scheduler &w)
    {
        const struct gemm_params &p = c.tiles.pairs;
        u32 pair = first_pair<K>(w, tile);
        u32 row = min(first_row<K>(w, tile), (w.n_rows - 1) / K::rows * K::rows);

        stage = part<K>() * w.n_stages;
        end = stage + w.n_stages;
        rows = (K::column_bytes == 1 ? p.packed_int8 : p.packed_bf16) +
               ((u64)(row / PACKED_TILE_ROWS) * (w.n_stages * K::parts) + stage) * K::chunk_bytes +
               row % PACKED_TILE_ROWS * STAGE_LINE;
        matrix = K::joins ? pair / c.matrix_pairs : 0;
        four = (pair - matrix * c.matrix_pairs) / 4;
    }
    __device__ __forceinline__ void next(const struct cluster_params &c, const struct cluster_scheduler &w)
    {
        rows += K::chunk_bytes;
        if (++stage < end)
            return;
        tile = next_tile(tile);
        if (tile < w.n_tiles)
            begin(c, w);
    }
    // alone: for this block. Else for both blocks, which copy TMA tiles in turn. Evict first: all readers of
    // a weight read it at the same time.
    __device__ __forceinline__ void copy_weights(const struct cluster_params &c, u32 to, u32 full,
                                                 bool alone) const
    {
        u64 policy = cache_policy(true);
#pragma unroll
        for (u32 tma_box = 0; tma_box < K::n_boxes; tma_box++) {
            const u32 at[3] = { stage * STAGE_COLUMNS, four + tma_box * (K::pairs / 4 / K::n_boxes), 0 };
            u32 cluster_place = to + K::rows_bytes + tma_box * K::box_bytes;
            if (alone || K::couple == 1)
                box_copy(cluster_place, &c.tiles.w[matrix], full, at, policy);
            else if ((tma_box + stage) % K::couple == in_couple<K>())
                box_copy_to_all(cluster_place, &c.tiles.w[matrix], full, at, (1 << ROWS_CLUSTER) - 1, policy);
        }
    }
};

// Requests the first weights: needs neither the other block nor the rows.
template <class K>
static __device__ __forceinline__ void copy_early(const struct cluster_params &c, struct pipe<K> pipe,
                                                  const struct cluster_scheduler &w)
{
    struct cluster_source<K> from;

    from.tile = first_tile();
    from.begin(c, w);
    for (; pipe.at < EARLY; from.next(c, w), pipe.next()) {
        expect_bytes(pipe.full + 8 * pipe.at, K::stage_bytes);
        from.copy_weights(c, pipe.stage(), pipe.full + 8 * pipe.at, true);
    }
}

template <class K>
static __device__ __forceinline__ void produce(const struct cluster_params &c, struct pipe<K> pipe,
                                               const struct cluster_scheduler &w)
{
    struct cluster_source<K> from;

    from.tile = first_tile();
    from.begin(c, w);
    wait_for_inputs();
    for (u32 i = 0; from.tile < w.n_tiles; i++, from.next(c, w), pipe.next()) {
        u32 full = pipe.full + 8 * pipe.at;
        if (i >= EARLY) {
            wait_for_stage(pipe.empty + 8 * pipe.at, pipe.phase ^ 1);
            expect_bytes(full, K::stage_bytes);
            from.copy_weights(c, pipe.stage(), full, false);
        }
        bulk_copy(pipe.stage(), from.rows, K::rows_bytes, full);
    }
}

// A thread's part of a tile: rows `row` and `row` + 8; of every eight pairs two, from `pair` on.
struct cluster_place {
    u32 row, n_rows, pair, end;
};
template <class K>
static __device__ __forceinline__ struct cluster_place place_of(const struct gemm_params &p,
                                                                const struct cluster_scheduler &w, u32 tile)
{
    u32 n_pairs = K::pairs / K::parts, first = first_pair<K>(w, tile) + part<K>() * n_pairs;
    struct cluster_place a = { first_row<K>(w, tile) + threadIdx.x % K::consumers / 32 * 16 +
                                   threadIdx.x % 32 / 4,
                               w.n_rows, first + threadIdx.x % 4 * 2, min(first + n_pairs, p.n_pairs) };

    asm volatile("" : "+r"(a.row), "+r"(a.n_rows), "+r"(a.pair), "+r"(a.end)); // now, while products run
    return a;
}

template <class K> struct cluster_products { // of a warpgroup
    f32 d[K::halves][K::N / 8][4];
    u32 own;    // offset of its rows in a stage
    u32 empty;  // barriers of the block that this lane's arrival goes to
    u32 before; // the stage that running products still read

    __device__ __forceinline__ void begin(const struct pipe<K> &pipe)
    {
        own = K::consumers > 128 ? __shfl_sync(~0u, threadIdx.x / 128, 0) * GROUP_BYTES : 0;
        empty = place_in(part<K>() + threadIdx.x % K::couple, pipe.empty);
        // The fence stands here and not between products, where the compiler may put it otherwise: they would
        // wait for each other.
#pragma unroll
        for (u32 half = 0; half < K::halves; half++)
#pragma unroll
            for (u32 n = 0; n < K::N / 8; n++) {
                d[half][n][0] = d[half][n][1] = d[half][n][2] = d[half][n][3] = 0;
                asm volatile(""
                             : "+f"(d[half][n][0]), "+f"(d[half][n][1]), "+f"(d[half][n][2]),
                               "+f"(d[half][n][3]));
            }
    }
    __device__ __forceinline__ void leave(u32 stage) const
    {
        if (threadIdx.x % 32 < K::couple)
            leave_stage_of(empty + 8 * stage);
    }
    // 64 columns. The products just started continue; earlier ones have finished.
    __device__ __forceinline__ void multiply(struct pipe<K> &pipe, bool first)
    {
        wait_for_stage(pipe.full + 8 * pipe.at, pipe.phase);
        u64 rows = tile_descriptor(pipe.stage() + own),
            weights = tile_descriptor(pipe.stage() + K::rows_bytes);
        wgmma_fence();
#pragma unroll
        for (u32 k = 0; k < 4; k++)
#pragma unroll
            for (u32 half = 0; half < K::halves; half++)
                wgmma(d[half], rows + half * (GROUP_BYTES >> 4) + NEXT_COLUMNS * k,
                      weights + NEXT_COLUMNS * k, k > 0 || !first);
        wgmma_order();
        if (!first)
            leave(before);
        before = pipe.at;
        pipe.next();
    }
    // n_stages: 0 for a warpgroup that multiplies nothing.
    __device__ __forceinline__ void multiply_all(struct pipe<K> &pipe, u32 n_stages)
    {
        for (u32 stage = 0; stage < n_stages; stage++)
            multiply(pipe, stage == 0);
    }
    __device__ __forceinline__ void finish(bool multiplied) const
    {
        wgmma_finish();
        if (multiplied)
            leave(before);
    }
    // Adds the second half's sums, through the stages, which are idle by then.
    __device__ __forceinline__ void send_sums(const struct pipe<K> &pipe) const
    {
        const f32(&s)[K::N / 8][4] = d[K::halves - 1];
#pragma unroll
        for (u32 n = 0; n < K::N / 8; n++)
            store_shared(pipe.data + (n * 128 + threadIdx.x % 128) * 16,
                         make_float4(s[n][0], s[n][1], s[n][2], s[n][3]));
    }
    __device__ __forceinline__ void take_over(const struct pipe<K> &pipe)
    {
#pragma unroll
        for (u32 n = 0; n < K::N / 8; n++) {
            float4 v = load_shared(pipe.data + (n * 128 + threadIdx.x % 128) * 16);
            d[0][n][0] = v.x;
            d[0][n][1] = v.y;
            d[0][n][2] = v.z;
            d[0][n][3] = v.w;
        }
    }
    __device__ __forceinline__ void next_half()
    {
#pragma unroll
        for (u32 n = 0; n < K::N / 8; n++)
#pragma unroll
            for (u32 i = 0; i < 4; i++)
                d[0][n][i] = d[K::halves - 1][n][i];
    }
};

// Consumer, where warpgroups take tiles in turn. It must not wait for its first stage early, since a stage's
// barrier tells only odd rounds of the pipeline from even ones.
static __device__ __forceinline__ void wait_for_order(u32 warpgroup)
{
    asm volatile("bar.sync %0, %1;" ::"r"(1 + warpgroup), "r"((u32)BOTH_THREADS) : "memory");
}
static __device__ __forceinline__ void give_order(u32 warpgroup)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(1 + warpgroup), "r"((u32)BOTH_THREADS) : "memory");
}
// RESULTS: expect (a tile's operands, of rows from 0 or 64 on), put (64 rows; whether the tile's second half
// is next), end.
//
// Whole tiles in turn. The block's last tile, which overlaps with no other, is finished by both warpgroups
// where it has two halves. No branch around the products: the compiler would make each of them wait for the
// one before.
template <class K, class RESULTS>
static __device__ __forceinline__ void consume_ping_pong(const struct tiles_params &t,
                                                         const struct cluster_scheduler &w,
                                                         struct pipe<K> pipe, u32 sums_ready, RESULTS results)
{
    struct cluster_products<K> x;
    u32 warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0), turn = 0;

    x.begin(pipe);
    wait_for_inputs();
    for (u32 tile = first_tile(); tile < w.n_tiles; tile = next_tile(tile), turn++) {
        bool own = turn % 2 == warpgroup, last = next_tile(tile) >= w.n_tiles, both = K::halves == 2 && last;
        if (!own && !both) {
            pipe.skip(w.n_stages);
            continue;
        }
        results.expect(place_of<K>(t.pairs, w, tile), own ? 0 : PACKED_TILE_ROWS / 2);
        if (own && turn > 0)
            wait_for_order(warpgroup);
        x.multiply_all(pipe, own ? w.n_stages : 0);
        if (own && !last)
            give_order(1 - warpgroup);
        struct cluster_place at = place_of<K>(t.pairs, w, tile);
        x.finish(own);
        if (own && both) {
            x.send_sums(pipe);
            // All lanes arrive: compute-sanitizer's racecheck credits the arriving lane only.
            leave_stage(sums_ready);
        }
        if (!own) {
            wait_for_stage(sums_ready, 0);
            x.take_over(pipe);
            at.row += PACKED_TILE_ROWS / 2;
        }
        // One copy of the instructions serves both halves.
#pragma unroll 1
        for (u32 half = both ? 1 : 0; half < K::halves; half++, at.row += PACKED_TILE_ROWS / 2) {
            results.put(x.d[0], at, half + 1 < K::halves);
            x.next_half();
        }
    }
    results.end();
    cluster_sync();
}
#endif
