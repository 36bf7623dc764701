// gemm_cluster.cu - GEMM for Hopper with bf16 weights, activations on the M side of wgmma: tile shapes such
// that the grid fills whole waves.
//
// Computes   out[row][n] = sum over k of x[row][k] * w[n][k], each kernel with one epilogue: linear, gated,
// or packed for the next operation, with an activation or without. A short kernel starts faster.
//
//   cluster of 2 blocks             64 to 192 weight rows (N side)         few tiles: split-K
//                                 +----------------------------------+
//   block 0: 64 or 128 rows (M)   |  warpgroup 0, 1: 64 rows each    |   block 0: columns [0, k/2) of a tile
//                                 +----------------------------------+   block 1: columns [k/2, k)
//   block 1: the next rows        |  the same weights (multicast)    |   each adds half of the sums (DSMEM)
//                                 +----------------------------------+
//
// Pipeline: one elected producer thread per block fills stages of 64 columns; each block of a cluster copies
// part of the weights and multicasts it to both. With one tile per block, two warpgroups take 64 rows each;
// with several waves they take whole tiles in turn (the ping-pong schedule of CUTLASS), so that the epilogue
// of one runs while the other multiplies. Split-K sums are exchanged through distributed shared memory.
// plan_wgmma.c chooses the shape.
//
// Epilogue: wgmma leaves a thread two weight rows of 8 columns. Weights come in fours of pairs, first rows
// and then second rows; after an exchange with the thread two further on, a thread has both rows of two
// neighbouring pairs, and stores four outputs at a time.
#include "gemm/cuda/activation.cuh"
#include "gemm/cuda/epilogue_pack.cuh"
#include "gemm/cuda/cluster/gemm_cluster.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

// Split-K over the two blocks of a cluster. Each block finishes half of the sums and gets the other block's
// part of them through distributed shared memory, which is faster than through global memory as in
// stream_k.cuh. FOURS: of a thread's sums, the ones that a block finishes.
template <u32 FOURS, u32 THREADS> struct neighbour {
    static constexpr u32 sums_bytes = FOURS * THREADS * 16;
    u32 sums, there; // in shared memory: the other block's sums, and their barrier, which expects sums_bytes
    u32 second;      // this block is the cluster's second one, and finishes the second half

    __device__ __forceinline__ void send_sums(const f32 (&d)[2 * FOURS][4]) const
    {
        u32 to = place_in(second ^ 1, sums + threadIdx.x * 16), barrier = place_in(second ^ 1, there);
#pragma unroll
        for (u32 i = 0; i < FOURS; i++) {
            const f32(&a)[4] = d[i], (&b)[4] = d[FOURS + i];
            float4 v = second ? make_float4(a[0], a[1], a[2], a[3]) : make_float4(b[0], b[1], b[2], b[3]);
            store_there(to + i * THREADS * 16, v, barrier);
        }
    }
    __device__ __forceinline__ void take_over(const f32 (&d)[2 * FOURS][4], f32 (&own)[FOURS][4]) const
    {
        wait_for_stage(there, 0);
#pragma unroll
        for (u32 i = 0; i < FOURS; i++) {
            const f32(&a)[4] = d[i], (&b)[4] = d[FOURS + i];
            float4 more = load_shared(sums + (i * THREADS + threadIdx.x) * 16);
            own[i][0] = (second ? b[0] : a[0]) + more.x;
            own[i][1] = (second ? b[1] : a[1]) + more.y;
            own[i][2] = (second ? b[2] : a[2]) + more.z;
            own[i][3] = (second ? b[3] : a[3]) + more.w;
        }
    }
};

// PING_PONG: two warpgroups take whole tiles in turn, of 64 rows or of two halves of that. couple: blocks
// with the same weights. parts: of the columns, which a cluster splits.
// PACKED: the result has a packed form, and nothing is added to it.
template <u32 WEIGHTS, u32 MODE, bool PING_PONG, u32 N_ROWS = PACKED_TILE_ROWS, bool SPLIT = false,
          bool PACKED = false>
struct cluster_kernel {
    static constexpr u32 N = WEIGHTS, pairs = N / 2, rows = N_ROWS;
    static constexpr bool waves = PING_PONG;
    static constexpr u32 couple = SPLIT ? 1 : ROWS_CLUSTER, parts = ROWS_CLUSTER / couple;
    static constexpr u32 halves = waves ? rows / 64 : 1, consumers = rows * 2 / halves; // threads of a tile
    static constexpr u32 threads = waves ? (u32)BOTH_THREADS : consumers;               // of the consumers
    static constexpr u32 fours = N / 8 / parts, eights = (fours + 1) / 2; // of pairs, that a block finishes
    // Eights finished at a time; with the most sums, registers are short.
    static constexpr u32 batch = N * halves > 352 ? 2 : 4;
    static constexpr bool GATED = MODE == EPILOGUE_GATED, ACTIVATED = MODE == EPILOGUE_ACTIVATED,
                          packed = PACKED, joins = false, moves_registers = rows == PACKED_TILE_ROWS;
    static constexpr u32 n_boxes = ROWS_BOXES(N), box_bytes = N / n_boxes * STAGE_COLUMNS * 2,
                         rows_bytes = rows * STAGE_COLUMNS * 2;
    static constexpr u32 column_bytes = 2, chunk_bytes = CHUNK_BYTES,
                         stage_bytes = rows_bytes + N * STAGE_COLUMNS * 2,
                         n_stages = HOPPER_TILES_ROOM / stage_bytes;
    using neighbour = struct neighbour<fours, consumers>;
};

struct two_pairs { // of a row: the first and second sum of each
    f32 first[2], second[2];
};
struct inputs {    // operands of the epilogue for both rows
    float4 add[2]; // packed: the bias
};

template <class K>
static __device__ __forceinline__ struct inputs load_inputs(const struct gemm_params &p,
                                                            const struct cluster_place &a)
{
    struct inputs in;

    if constexpr (K::packed) {
        bool there = p.bias[0] && a.pair < a.end;
        in.add[0] = in.add[1] = there ? *(const float4 *)(p.bias[0] + 2 * a.pair) : make_float4(0, 0, 0, 0);
        return in;
    }
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        u32 row = a.row + 8 * i;
        bool there = !K::GATED && p.add && row < a.n_rows && a.pair < a.end;
        in.add[i] = there ? *(const float4 *)(p.add + (u64)row * p.out_stride[0] + 2 * a.pair)
                          : make_float4(0, 0, 0, 0);
    }
    return in;
}

static __device__ __forceinline__ void epilogue_gated(const struct tiles_params &t,
                                                      const struct cluster_place &a, u32 row,
                                                      const struct two_pairs &s)
{
    const struct gemm_params &p = t.pairs;
    f32 v[2];

#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        f32 gate = t.swapped ? s.second[i] : s.first[i], up = t.swapped ? s.first[i] : s.second[i];
        v[i] = activation_of(p.activation, gate) * up;
    }
    if (p.out[0])
        *(float2 *)(p.out[0] + (u64)row * p.out_stride[0] + a.pair) = make_float2(v[0], v[1]);
    if (p.packed_out.at)
        pack_put(p.packed_out, row, a.pair, v[0], v[1]);
}

static __device__ __forceinline__ void epilogue_plain(const struct gemm_params &p,
                                                      const struct cluster_place &a, u32 row,
                                                      const struct two_pairs &s, const float4 &add)
{
    float4 v = make_float4(s.first[0] + add.x, s.second[0] + add.y, s.first[1] + add.z, s.second[1] + add.w);

    if (p.bias[0]) {
        float4 bias = *(const float4 *)(p.bias[0] + 2 * a.pair);
        v = make_float4(v.x + bias.x, v.y + bias.y, v.z + bias.z, v.w + bias.w);
    }
    *(float4 *)(p.out[0] + (u64)row * p.out_stride[0] + 2 * a.pair) = v;
}

static __device__ __forceinline__ void put_four(const struct packed_out &next, u32 row, u32 column,
                                                const f32 (&v)[4])
{
    __nv_bfloat162 low = __floats2bfloat162_rn(v[0], v[1]), high = __floats2bfloat162_rn(v[2], v[3]);
    *(uint2 *)packed_place(next, row, column) = make_uint2(*(u32 *)&low, *(u32 *)&high);
}

template <class K>
static __device__ __forceinline__ void epilogue_packed(const struct gemm_params &p,
                                                       const struct cluster_place &a, u32 row,
                                                       const struct two_pairs &s, const float4 &bias)
{
    f32 v[4] = { s.first[0] + bias.x, s.second[0] + bias.y, s.first[1] + bias.z, s.second[1] + bias.w };

    if constexpr (K::ACTIVATED)
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            v[i] = activation_of(p.activation, v[i]);
    if (p.out[0])
        *(float4 *)(p.out[0] + (u64)row * p.out_stride[0] + 2 * a.pair) = make_float4(v[0], v[1], v[2], v[3]);
    put_four(p.packed_out, row, 2 * a.pair, v);
}

// Gets a sum from the thread two further on, or two before. Without __shfl_xor_sync, for which the compiler
// would move sums while products run, which then wait for each other.
static __device__ __forceinline__ f32 from_second_next(f32 v)
{
    f32 got;
    asm volatile("shfl.sync.bfly.b32 %0, %1, 2, 31, 0xffffffff;" : "=f"(got) : "f"(v));
    return got;
}

// Two sums of a row in each of two fours of pairs: threads 0 and 1 of the four get the first rows, 2 and 3
// the second rows.
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

// The epilogue of eight pairs, by all lanes together.
template <class K>
static __device__ __forceinline__ void epilogue_eight(const struct tiles_params &t, struct cluster_place a,
                                                      const f32 (&low)[4], const f32 (&high)[4],
                                                      const struct inputs &in)
{
    // Addresses are computed here, and not kept for the next eight.
    asm volatile("" : "+r"(a.row), "+r"(a.pair));
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        struct two_pairs s = exchange(low + 2 * i, high + 2 * i);
        u32 row = a.row + 8 * i;
        if (row >= a.n_rows || a.pair >= a.end)
            continue;
        if constexpr (K::GATED)
            epilogue_gated(t, a, row, s);
        else if constexpr (K::packed)
            epilogue_packed<K>(t.pairs, a, row, s, in.add[i]);
        else
            epilogue_plain(t.pairs, a, row, s, in.add[i]);
    }
}

// Stores the results of a warpgroup, some eights at a time.
template <class K>
static __device__ __forceinline__ void epilogue_sums(const struct tiles_params &t,
                                                     const f32 (&d)[K::fours][4], struct cluster_place at)
{
    const f32 none[4] = { 0, 0, 0, 0 };
#pragma unroll
    for (u32 first = 0; first < K::eights; first += K::batch) {
        struct inputs in[K::batch];
#pragma unroll
        for (u32 i = 0; i < K::batch && first + i < K::eights; i++) {
            struct cluster_place a = at;
            a.pair += 8 * i;
            in[i] = load_inputs<K>(t.pairs, a);
        }
#pragma unroll
        for (u32 i = 0; i < K::batch && first + i < K::eights; i++, at.pair += 8) {
            u32 n = 2 * (first + i);
            epilogue_eight<K>(t, at, d[n], n + 1 < K::fours ? d[n + 1 < K::fours ? n + 1 : 0] : none, in[i]);
        }
    }
}
// All warpgroups, 64 rows each.
template <class K>
static __device__ __forceinline__ void
consume_together(const struct tiles_params &t, const struct cluster_scheduler &w, struct pipe<K> pipe)
{
    struct cluster_products<K> x;

    x.begin(pipe);
    wait_for_inputs();
    for (u32 tile = first_tile(); tile < w.n_tiles; tile = next_tile(tile)) {
        x.multiply_all(pipe, w.n_stages);
        struct cluster_place at = place_of<K>(t.pairs, w, tile);
        x.finish(true);
        epilogue_sums<K>(t, x.d[0], at);
    }
    cluster_sync(); // no block ends while its neighbour may still write to it
}

// One tile at most; this block multiplies a part of its columns. The other block's sums arrive where its
// stages were.
template <class K>
static __device__ __forceinline__ void consume_split(const struct tiles_params &t,
                                                     const struct cluster_scheduler &w, struct pipe<K> pipe,
                                                     const typename K::neighbour &other)
{
    struct cluster_products<K> x;
    f32 own[K::fours][4];
    u32 tile = first_tile();

    x.begin(pipe);
    wait_for_inputs();
    x.multiply_all(pipe, tile < w.n_tiles ? w.n_stages : 0);
    struct cluster_place at = place_of<K>(t.pairs, w, tile);
    x.finish(tile < w.n_tiles);
    cluster_sync(); // all stages have been read
    if (tile >= w.n_tiles)
        return;
    other.send_sums(x.d[0]);
    other.take_over(x.d[0], own);
    epilogue_sums<K>(t, own, at);
}
// Results straight from registers.
template <class K> struct direct_results {
    const struct tiles_params &t;

    __device__ __forceinline__ void expect(const struct cluster_place &, u32) const
    {
    }
    __device__ __forceinline__ void put(const f32 (&d)[K::N / 8][4], const struct cluster_place &at,
                                        bool) const
    {
        epilogue_sums<K>(t, d, at);
    }
    __device__ __forceinline__ void end() const
    {
    }
};

template <class K> static __device__ __forceinline__ void gemm_cluster(const struct cluster_params &c)
{
    const struct tiles_params &t = c.tiles;
    extern __shared__ __align__(1024) unsigned char shared[];
    struct pipe<K> pipe = {
        0
    };
    const u32 barriers_end = K::n_stages * (K::stage_bytes + 16) + 8;
    struct cluster_scheduler &w = *(struct cluster_scheduler *)(shared + barriers_end);
    u32 sums_ready = shared_address(shared) + barriers_end - 8; // of the other warpgroup, or block
    bool fills_waves = __shfl_sync(~0u, threadIdx.x / 32, 0) == K::threads / 32;

    pipe.data = shared_address(shared);
    pipe.full = pipe.data + K::n_stages * K::stage_bytes;
    pipe.empty = pipe.full + 8 * K::n_stages;
    if (fills_waves && elect_one()) {
        prefetch_view(&t.w[0]);
        for (u32 i = 0; i < K::n_stages; i++) {
            barrier_begin(pipe.full + 8 * i, 1);
            barrier_begin(pipe.empty + 8 * i, K::couple * K::consumers / 32);
        }
        barrier_begin(sums_ready, K::parts > 1 ? 1 : K::consumers);
        if constexpr (K::parts > 1)
            expect_bytes(sums_ready, K::neighbour::sums_bytes);
        show_barriers();
        w = tile_scheduler_of<K>(c);
        if (first_tile() < w.n_tiles)
            copy_early(c, pipe, w);
    }
    cluster_sync();
    if (threadIdx.x >= K::threads) {
        if constexpr (K::moves_registers)
            asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (fills_waves && elect_one())
            produce<K>(c, pipe, w);
        else
            wait_for_inputs();
        cluster_sync();
    } else {
        if constexpr (K::moves_registers)
            asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        if constexpr (K::parts > 1)
            consume_split<K>(t, w, pipe, { pipe.data, sums_ready, part<K>() });
        else if constexpr (K::waves)
            consume_ping_pong<K>(t, w, pipe, sums_ready, direct_results<K>{ t });
        else
            consume_together<K>(t, w, pipe);
    }
}

#define GEMM_CLUSTER(name, ROWS, SPLIT, ...)                                     \
    extern "C" __global__ void __launch_bounds__(ROWS_THREADS(ROWS, SPLIT), 1)   \
        __cluster_dims__(ROWS_CLUSTER, 1, 1)                                     \
            gemm_cluster_##name(const __grid_constant__ struct cluster_params c) \
    {                                                                            \
        gemm_cluster<cluster_kernel<__VA_ARGS__>>(c);                            \
    }
#define GEMM_ROWS(name, ROWS, N, MODE, PING_PONG, SPLIT) \
    GEMM_CLUSTER(name, ROWS, SPLIT, N, MODE, PING_PONG, ROWS, SPLIT)
#define GEMM_PACKED(name, N, MODE) GEMM_CLUSTER(name, 128, false, N, MODE, true, 128, false, true)
#define EACH(N)                                                     \
    GEMM_ROWS(N, 128, N, EPILOGUE_LINEAR, false, false)             \
    GEMM_ROWS(gated_##N, 128, N, EPILOGUE_GATED, false, false)      \
    GEMM_ROWS(waves_##N, 128, N, EPILOGUE_LINEAR, true, false)      \
    GEMM_ROWS(gated_waves_##N, 128, N, EPILOGUE_GATED, true, false) \
    GEMM_PACKED(packed_##N, N, EPILOGUE_LINEAR)                     \
    GEMM_PACKED(activated_##N, N, EPILOGUE_ACTIVATED)
EACH(128)
EACH(168)
EACH(176)
EACH(192)

// For few tiles: rows, and weight rows, of a tile.
#define SPLIT(ROWS, N) GEMM_ROWS(split_##ROWS##x##N, ROWS, N, EPILOGUE_LINEAR, false, true)
SPLIT(64, 64)
SPLIT(64, 96)
SPLIT(128, 64)
SPLIT(128, 96)
SPLIT(128, 128)
GEMM_ROWS(128x96, 128, 96, EPILOGUE_LINEAR, false, false)
GEMM_ROWS(64x168, 64, 168, EPILOGUE_LINEAR, true, false)
GEMM_ROWS(64x192, 64, 192, EPILOGUE_LINEAR, true, false)
#endif
