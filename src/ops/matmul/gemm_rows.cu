// gemm_rows.cu - products of many rows of activations and bf16 weights for Hopper, in tiles that make whole turns of the multiprocessors.
//
// A tile is 128 rows of activations, the M side of the instruction, by 128 to 192 weight rows; pairs_tiles.c takes what makes whole turns, since
// blocks share no tile. The two blocks of a cluster have the same weights, which each copies in part for both, and neighbouring rows.
// One thread of a block keeps a belt of stages of 64 columns full. Where a block has one tile, two warpgroups take 64 rows each; where it
// has several, they take whole tiles in turn, so that one's results leave while the other multiplies.
// In 8 columns of its sums the instruction leaves a thread two weight rows: weights travel in fours of pairs, first rows and then second
// ones, and after an exchange with the thread after the next one a thread has both rows of two neighbouring pairs.
// A kernel ends one operation alone and is short: what a launch runs through once comes from memory, a microsecond for some KB.
#include "ops/activate/activation.cuh"
#include "ops/matmul/pairs.h"
#include "ops/matmul/ready_next.cuh"
#include "ops/matmul/wgmma.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

enum { CONSUMERS = 256, STAGE_COLUMNS = 64, ROWS_BYTES = READY_ROWS * STAGE_COLUMNS * 2, HALF_BYTES = ROWS_BYTES / 2, EARLY = 2 };

// halves: of a tile's rows, that a warpgroup takes.
template <u32 WEIGHTS, u32 MODE, u32 HALVES> struct kernel {
    static constexpr u32 N = WEIGHTS, pairs = N / 2, eights = (N + 15) / 16; // eights of pairs
    static constexpr u32 halves = HALVES, consumers = CONSUMERS / HALVES;    // threads of a tile
    static constexpr u32 batch = N * halves > 352 ? 2 : 4; // eights that end at a time: of most sums registers are short
    static constexpr bool GATED = MODE == PAIRS_GATED;
    static constexpr u32 n_boxes = ROWS_BOXES(N), box_bytes = N / n_boxes * STAGE_COLUMNS * 2;
    static constexpr u32 stage_bytes = ROWS_BYTES + N * STAGE_COLUMNS * 2, n_stages = HOPPER_TILES_ROOM / stage_bytes;
};

// What the clusters compute, all in turn, neighbours with the same weights, so that these are read from memory once.
struct walk {
    u32 n_rows, n_row_tiles, n_stages, n_tiles; // tiles of a cluster
};

template <class K> static __device__ __forceinline__ struct walk walk_of(const struct pairs_params &p, u32 n_rows)
{
    u32 rows = ROWS_CLUSTER * READY_ROWS, n_row_tiles = (n_rows + rows - 1) / rows;

    return { n_rows, n_row_tiles, p.ready_cols / STAGE_COLUMNS, n_row_tiles * ((p.n_pairs + K::pairs - 1) / K::pairs) };
}
static __device__ __forceinline__ u32 first_tile()
{
    return blockIdx.x / ROWS_CLUSTER;
}
static __device__ __forceinline__ u32 next_tile(u32 tile)
{
    return tile + gridDim.x / ROWS_CLUSTER;
}
static __device__ __forceinline__ u32 first_row(const struct walk &w, u32 tile)
{
    return (tile % w.n_row_tiles * ROWS_CLUSTER + blockIdx.x % ROWS_CLUSTER) * READY_ROWS;
}
template <class K> static __device__ __forceinline__ u32 first_pair(const struct walk &w, u32 tile)
{
    return tile / w.n_row_tiles * K::pairs;
}

// Where the next stage's copies come from.
template <class K> struct source {
    const u8 *rows;        // what lies in the place of rows that do not exist is multiplied for nothing
    u32 tile, stage, four; // four: the tile's first four pairs

    __device__ __forceinline__ void begin(const struct pairs_params &p, const struct walk &w)
    {
        u32 row = min(first_row(w, tile), w.n_rows - 1);

        rows = p.ready_bf16 + (u64)(row / READY_ROWS) * w.n_stages * ROWS_BYTES;
        stage = 0;
        four = first_pair<K>(w, tile) / 4;
    }
    __device__ __forceinline__ void next(const struct pairs_params &p, const struct walk &w)
    {
        rows += ROWS_BYTES;
        if (++stage < w.n_stages)
            return;
        tile = next_tile(tile);
        if (tile < w.n_tiles)
            begin(p, w);
    }
    // alone: for this block. Else for both, which take the boxes in turns. Who else wants these weights reads them at the same time: that they
    // leave the L2 cache first makes 512 rows of 11,008 x 4,096 70.2 us, of 71.7.
    __device__ __forceinline__ void copy_weights(const struct tiles_params &t, u32 to, u32 full, bool alone) const
    {
        u64 policy = cache_policy(true);
#pragma unroll
        for (u32 box = 0; box < K::n_boxes; box++) {
            const u32 at[3] = { stage * STAGE_COLUMNS, four + box * (K::pairs / 4 / K::n_boxes), 0 };
            u32 place = to + ROWS_BYTES + box * K::box_bytes;
            if (alone)
                box_copy(place, &t.w[0], full, at, policy);
            else if ((box + stage) % ROWS_CLUSTER == blockIdx.x % ROWS_CLUSTER)
                box_copy_to_all(place, &t.w[0], full, at, (1 << ROWS_CLUSTER) - 1, policy);
        }
    }
};

// The first weights: needs neither the other block nor the rows.
template <class K>
static __device__ __forceinline__ void copy_early(const struct tiles_params &t, struct belt<K> belt, const struct walk &w)
{
    struct source<K> from;

    from.tile = first_tile();
    from.begin(t.pairs, w);
    for (; belt.at < EARLY; from.next(t.pairs, w), belt.next()) {
        expect_bytes(belt.full + 8 * belt.at, K::stage_bytes);
        from.copy_weights(t, belt.stage(), belt.full + 8 * belt.at, true);
    }
}

template <class K>
static __device__ __forceinline__ void produce(const struct tiles_params &t, struct belt<K> belt, const struct walk &w)
{
    struct source<K> from;

    from.tile = first_tile();
    from.begin(t.pairs, w);
    wait_for_inputs();
    for (u32 i = 0; from.tile < w.n_tiles; i++, from.next(t.pairs, w), belt.next()) {
        u32 full = belt.full + 8 * belt.at;
        if (i >= EARLY) {
            wait_for_stage(belt.empty + 8 * belt.at, belt.phase ^ 1);
            expect_bytes(full, K::stage_bytes);
            from.copy_weights(t, belt.stage(), full, false);
        }
        bulk_copy(belt.stage(), from.rows, ROWS_BYTES, full);
    }
}

// A thread's part of a tile: rows `row` and `row` + 8, and of every eight pairs two, from `pair` on.
struct place {
    u32 row, n_rows, pair, end;
};
struct two_pairs { // of a row: first and second of each
    f32 first[2], second[2];
};
struct inputs { // what is added to both rows
    float4 add[2];
};

template <class K>
static __device__ __forceinline__ struct place place_of(const struct pairs_params &p, const struct walk &w, u32 tile)
{
    u32 first = first_pair<K>(w, tile);
    struct place a = { first_row(w, tile) + threadIdx.x % K::consumers / 32 * 16 + threadIdx.x % 32 / 4, w.n_rows,
                       first + threadIdx.x % 4 * 2, min(first + K::pairs, p.n_pairs) };

    asm volatile("" : "+r"(a.row), "+r"(a.n_rows), "+r"(a.pair), "+r"(a.end)); // now, while products run
    return a;
}

template <class K>
static __device__ __forceinline__ struct inputs load_inputs(const struct pairs_params &p, const struct place &a)
{
    struct inputs in;

#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        u32 row = a.row + 8 * i;
        bool there = !K::GATED && p.add && row < a.n_rows && a.pair < a.end;
        in.add[i] = there ? *(const float4 *)(p.add + (u64)row * p.out_stride[0] + 2 * a.pair) : make_float4(0, 0, 0, 0);
    }
    return in;
}

static __device__ __forceinline__ void end_gated(const struct tiles_params &t, const struct place &a, u32 row,
                                                 const struct two_pairs &s)
{
    const struct pairs_params &p = t.pairs;
    f32 v[2];

#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        f32 gate = t.swapped ? s.second[i] : s.first[i], up = t.swapped ? s.first[i] : s.second[i];
        v[i] = activation_of(p.activation, gate) * up;
    }
    *(float2 *)(p.out[0] + (u64)row * p.out_stride[0] + a.pair) = make_float2(v[0], v[1]);
    if (p.next.at)
        put_next(p.next, row, a.pair, v[0], v[1]);
}

static __device__ __forceinline__ void end_plain(const struct pairs_params &p, const struct place &a, u32 row,
                                                 const struct two_pairs &s, const float4 &add)
{
    float4 v = make_float4(s.first[0] + add.x, s.second[0] + add.y, s.first[1] + add.z, s.second[1] + add.w);

    if (p.bias[0]) {
        float4 bias = *(const float4 *)(p.bias[0] + 2 * a.pair);
        v = make_float4(v.x + bias.x, v.y + bias.y, v.z + bias.z, v.w + bias.w);
    }
    *(float4 *)(p.out[0] + (u64)row * p.out_stride[0] + 2 * a.pair) = v;
}

// From the thread after the next one, or before the one before. Not by __shfl_xor_sync: the compiler would make words of the sums that
// it takes, and move them while products run, which then wait for each other.
static __device__ __forceinline__ f32 from_second_next(f32 v)
{
    f32 got;
    asm volatile("shfl.sync.bfly.b32 %0, %1, 2, 31, 0xffffffff;" : "=f"(got) : "f"(v));
    return got;
}

// Two sums of a row in each of two fours of pairs: threads 0 and 1 of the four have the first rows, 2 and 3 the second ones.
static __device__ __forceinline__ struct two_pairs exchange(const f32 *a, const f32 *b)
{
    bool low = threadIdx.x % 4 < 2;
    struct two_pairs s;

#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        f32 own = low ? a[i] : b[i], got = from_second_next(low ? b[i] : a[i]);
        s.first[i] = low ? own : got;
        s.second[i] = low ? got : own;
    }
    return s;
}

// The end of eight pairs, all lanes together.
template <class K>
static __device__ __forceinline__ void end_eight(const struct tiles_params &t, struct place a, const f32 (&low)[4],
                                                 const f32 (&high)[4], const struct inputs &in)
{
    asm volatile("" : "+r"(a.row), "+r"(a.pair)); // addresses are worked out here, not kept from eight to eight
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        struct two_pairs s = exchange(low + 2 * i, high + 2 * i);
        u32 row = a.row + 8 * i;
        if (row >= a.n_rows || a.pair >= a.end)
            continue;
        if constexpr (K::GATED)
            end_gated(t, a, row, s);
        else
            end_plain(t.pairs, a, row, s, in.add[i]);
    }
}

// The results of half a tile, some eights at a time.
template <class K>
static __device__ __forceinline__ void end_half(const struct tiles_params &t, const f32 (&d)[K::N / 8][4], struct place at)
{
    const f32 none[4] = { 0, 0, 0, 0 };
#pragma unroll
    for (u32 first = 0; first < K::eights; first += K::batch) {
        struct inputs in[K::batch];
#pragma unroll
        for (u32 i = 0; i < K::batch && first + i < K::eights; i++) {
            struct place a = at;
            a.pair += 8 * i;
            in[i] = load_inputs<K>(t.pairs, a);
        }
#pragma unroll
        for (u32 i = 0; i < K::batch && first + i < K::eights; i++, at.pair += 8) {
            u32 n = 2 * (first + i);
            end_eight<K>(t, at, d[n], n + 1 < K::N / 8 ? d[n + 1 < K::N / 8 ? n + 1 : 0] : none, in[i]);
        }
    }
}

template <class K> struct products { // of a warpgroup
    f32 d[K::halves][K::N / 8][4];
    u32 own;    // where its rows of a stage begin
    u32 empty;  // barriers of the block that hears from this lane
    u32 before; // the stage that products in flight still read

    __device__ __forceinline__ void begin(const struct belt<K> &belt)
    {
        own = K::halves == 1 ? __shfl_sync(~0u, threadIdx.x / 128, 0) * HALF_BYTES : 0;
        empty = place_in(threadIdx.x % ROWS_CLUSTER, belt.empty);
#pragma unroll
        for (u32 half = 0; half < K::halves; half++)
#pragma unroll
            for (u32 n = 0; n < K::N / 8; n++)
                d[half][n][0] = d[half][n][1] = d[half][n][2] = d[half][n][3] = 0;
    }
    __device__ __forceinline__ void leave(u32 stage) const
    {
        if (threadIdx.x % 32 < ROWS_CLUSTER)
            leave_stage_of(empty + 8 * stage);
    }
    // 64 columns. The products just begun run on; those before them are done.
    __device__ __forceinline__ void multiply(struct belt<K> &belt, bool first)
    {
        wait_for_stage(belt.full + 8 * belt.at, belt.phase);
        u64 rows = tile_descriptor(belt.stage() + own), weights = tile_descriptor(belt.stage() + ROWS_BYTES);
        wgmma_fence();
#pragma unroll
        for (u32 k = 0; k < 4; k++)
#pragma unroll
            for (u32 half = 0; half < K::halves; half++)
                wgmma(d[half], rows + half * (HALF_BYTES >> 4) + NEXT_COLUMNS * k, weights + NEXT_COLUMNS * k, k > 0 || !first);
        wgmma_turn();
        if (!first)
            leave(before);
        before = belt.at;
        belt.next();
    }
    // n_stages: 0 for who multiplies nothing.
    __device__ __forceinline__ void multiply_all(struct belt<K> &belt, u32 n_stages)
    {
        for (u32 stage = 0; stage < n_stages; stage++)
            multiply(belt, stage == 0);
    }
    __device__ __forceinline__ void finish(bool multiplied) const
    {
        wgmma_finish();
        if (multiplied)
            leave(before);
    }
    // The second half's sums, by way of the belt, which nobody fills any more.
    __device__ __forceinline__ void hand_over(const struct belt<K> &belt) const
    {
        const f32(&s)[K::N / 8][4] = d[K::halves - 1];
#pragma unroll
        for (u32 n = 0; n < K::N / 8; n++)
            store_shared(belt.data + (n * 128 + threadIdx.x % 128) * 16, make_float4(s[n][0], s[n][1], s[n][2], s[n][3]));
    }
    __device__ __forceinline__ void take_over(const struct belt<K> &belt)
    {
#pragma unroll
        for (u32 n = 0; n < K::N / 8; n++) {
            float4 v = load_shared(belt.data + (n * 128 + threadIdx.x % 128) * 16);
            d[0][n][0] = v.x;
            d[0][n][1] = v.y;
            d[0][n][2] = v.z;
            d[0][n][3] = v.w;
        }
    }
    // One half's instructions serve both.
    __device__ __forceinline__ void end(const struct tiles_params &t, struct place at, u32 n_halves)
    {
#pragma unroll 1
        for (u32 half = 0; half < n_halves; half++, at.row += READY_ROWS / 2) {
            end_half<K>(t, d[0], at);
#pragma unroll
            for (u32 n = 0; n < K::N / 8; n++)
#pragma unroll
                for (u32 i = 0; i < 4; i++)
                    d[0][n][i] = d[K::halves - 1][n][i];
        }
    }
};

// Both warpgroups, half a tile each.
template <class K>
static __device__ __forceinline__ void consume_together(const struct tiles_params &t, const struct walk &w, struct belt<K> belt)
{
    struct products<K> x;

    x.begin(belt);
    wait_for_inputs();
    for (u32 tile = first_tile(); tile < w.n_tiles; tile = next_tile(tile)) {
        x.multiply_all(belt, w.n_stages);
        struct place at = place_of<K>(t.pairs, w, tile);
        x.finish(true);
        x.end(t, at, 1);
    }
}

// Who multiplies, where warpgroups take turns: the other must not even wait for its first stage before, since a stage's barrier tells only
// odd rounds of the belt from even ones.
static __device__ __forceinline__ void wait_for_turn(u32 warpgroup)
{
    asm volatile("bar.sync %0, %1;" ::"r"(1 + warpgroup), "r"((u32)CONSUMERS) : "memory");
}
static __device__ __forceinline__ void give_turn(u32 warpgroup)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(1 + warpgroup), "r"((u32)CONSUMERS) : "memory");
}

// Whole tiles in turn. The block's last one, which has nothing to run beside, ends in both warpgroups. No branch round the products: the
// compiler would make each of them wait for the one before.
template <class K>
static __device__ __forceinline__ void consume_in_turns(const struct tiles_params &t, const struct walk &w, struct belt<K> belt, u32 handed)
{
    struct products<K> x;
    u32 warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0), turn = 0;

    x.begin(belt);
    wait_for_inputs();
    for (u32 tile = first_tile(); tile < w.n_tiles; tile = next_tile(tile), turn++) {
        bool own = turn % 2 == warpgroup, last = next_tile(tile) >= w.n_tiles;
        if (!own && !last) {
            belt.skip(w.n_stages);
            continue;
        }
        if (own && turn > 0)
            wait_for_turn(warpgroup);
        x.multiply_all(belt, own ? w.n_stages : 0);
        if (own && !last)
            give_turn(1 - warpgroup);
        struct place at = place_of<K>(t.pairs, w, tile);
        x.finish(own);
        if (own && last) {
            x.hand_over(belt);
            leave_stage(handed); // every lane, at no cost: racecheck takes one lane's arrival for its own alone
        }
        if (!own) {
            wait_for_stage(handed, 0);
            x.take_over(belt);
            at.row += READY_ROWS / 2;
        }
        x.end(t, at, last ? 1 : 2);
    }
}

template <class K> static __device__ __forceinline__ void gemm_rows(const struct tiles_params &t)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    struct belt<K> belt = {
    };
    struct walk &w = *(struct walk *)(shared + K::n_stages * (K::stage_bytes + 16));
    u32 handed = shared_address(&w + 1); // barrier: half of the last tile's sums
    bool fills = __shfl_sync(~0u, threadIdx.x / 32, 0) == CONSUMERS / 32;

    belt.data = shared_address(shared);
    belt.full = belt.data + K::n_stages * K::stage_bytes;
    belt.empty = belt.full + 8 * K::n_stages;
    if (fills && elect_one()) {
        u32 n_rows = n_rows_of(t.pairs.step, t.pairs.rows); // older than any launch of this step
        prefetch_view(&t.w[0]);
        for (u32 i = 0; i < K::n_stages; i++) {
            barrier_begin(belt.full + 8 * i, 1);
            barrier_begin(belt.empty + 8 * i, ROWS_CLUSTER * K::consumers / 32);
        }
        barrier_begin(handed, K::consumers);
        show_barriers();
        w = walk_of<K>(t.pairs, n_rows);
        if (first_tile() < w.n_tiles)
            copy_early(t, belt, w);
    }
    cluster_meet();
    if (threadIdx.x >= CONSUMERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (fills && elect_one())
            produce<K>(t, belt, w);
        else
            wait_for_inputs();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        if constexpr (K::halves == 2)
            consume_in_turns<K>(t, w, belt, handed);
        else
            consume_together<K>(t, w, belt);
    }
    cluster_meet(); // no block ends while another may still write here
}

#define GEMM_ROWS(name, N, MODE, HALVES)                                                                    \
    extern "C" __global__ void __launch_bounds__(HOPPER_THREADS(2), 1) __cluster_dims__(ROWS_CLUSTER, 1, 1) \
        gemm_rows_##name##N(const __grid_constant__ struct tiles_params t)                                  \
    {                                                                                                       \
        gemm_rows<kernel<N, MODE, HALVES>>(t);                                                              \
    }
#define EACH(N)                          \
    GEMM_ROWS(, N, PAIRS_PLAIN, 1)       \
    GEMM_ROWS(gated_, N, PAIRS_GATED, 1) \
    GEMM_ROWS(turns_, N, PAIRS_PLAIN, 2) \
    GEMM_ROWS(gated_turns_, N, PAIRS_GATED, 2)
EACH(128)
EACH(168)
EACH(176)
EACH(192)
#endif
