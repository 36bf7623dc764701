// moe_hopper.cu - GEMM of many rows with the experts that they chose, for Hopper by wgmma: one launch for all
// experts.
//
// Computes, for each expert and its rows x, gate and up of x with the activation (moe_hopper_up), or down of
// hidden rows (moe_hopper_down).
//
//                        up to 160 rows of one expert (N side)
//                     +--------------------------------------+
//   2 groups of   32  | warpgroup 0: 64 weight rows (M side) |   stage: 64 columns of the rows
//   32 pairs      32  | warpgroup 1                          |   persistent: one block an SM
//                     +--------------------------------------+
//
// Tiles: each expert's rows are cut into as few equal parts as fit, so that its weights are dequantised once
// where they are no more than a tile takes; heaviest experts first, a tile's pairs side by side, so that its
// rows come from the L2. The list of tiles is made by every block for itself from the experts' counts.
// Pipeline: one producer thread keeps 9 stages of shared memory full by bulk copies, in the order in which
// moe_pack, or the launch before, wrote them. Weights go straight to registers, two steps of 128 columns
// ahead; four fragments are dequantised while four products run.
// Widths: a tile pays for 32, 64, 96, 128, 144 or 160 rows.
// Epilogue: from registers. Hidden numbers become the packed rows of the next launch, transposed by
// movmatrix; what down adds goes to its entry's row as bf16.
#include "gemm/cuda/fragments.cuh"
#include "gemm/cuda/wgmma.cuh"
#include "ops/experts/experts_gated.cuh"
#include "ops/moe/moe_many.h"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

enum { GROUPS = 2, CONSUMERS = GROUPS * 128, GROUP_PAIRS = 32, MOST_WIDTH = MOE_TILE_ROWS, DEPTH = 2 };

struct stages {
    static constexpr u32 n_stages = MOE_STAGES, stage_bytes = MOST_WIDTH * 128;
};

struct tile { // of an expert's rows, in eights
    u32 expert, first, n;
};

struct hopper_state {
    u64 full[MOE_STAGES], empty[MOE_STAGES];
    u32 count[MOE_MANY_EXPERTS], region[MOE_MANY_EXPERTS]; // rows; where they begin
    u32 tiles[MOE_MOST_TILES];
    u32 n_tiles;
    alignas(8) u32 entries[GROUPS][2][MOST_WIDTH]; // read by twos
};

static __device__ __forceinline__ u32 eights(u32 n)
{
    return (n + 7) / 8;
}
static __device__ __forceinline__ u32 parts(u32 n) // of an expert's rows
{
    return (n + MOST_WIDTH - 1) / MOST_WIDTH;
}

// The experts' parts, heaviest experts first: an expert's place is the number of parts of heavier ones.
static __device__ __forceinline__ void list_tiles(const struct moe_many_params &p, struct hopper_state &s)
{
    for (u32 e = threadIdx.x; e < p.n_experts; e += blockDim.x) {
        s.count[e] = __ldcg(p.count + e);
        s.region[e] = __ldcg(p.region + e);
    }
    __syncthreads();
    for (u32 e = threadIdx.x; e < p.n_experts; e += blockDim.x) {
        u32 mine = s.count[e], n = parts(mine), all = eights(mine), at = 0;
        for (u32 i = 0; i < p.n_experts; i++)
            at += s.count[i] > mine || (s.count[i] == mine && i < e) ? parts(s.count[i]) : 0;
        for (u32 i = 0; i < n; i++) {
            u32 first = all * i / n, end = all * (i + 1) / n;
            s.tiles[at + i] = e | first << 8 | (end - first) << 24;
        }
        if (at + n > 0)
            atomicMax(&s.n_tiles, at + n);
    }
    __syncthreads();
}

static __device__ __forceinline__ struct tile tile_of(const struct hopper_state &s, u32 i)
{
    u32 v = s.tiles[i];
    return { v & 255, v >> 8 & 0xffff, v >> 24 };
}

// What a block does in turn: item i is pairs [64 (i % n_pair_tiles), ...) of tile i / n_pair_tiles.
struct items {
    u32 n_pair_tiles, n;

    __device__ __forceinline__ items(const struct moe_many_params &p, const struct hopper_state &s)
    {
        n_pair_tiles = (p.n_pairs + GROUPS * GROUP_PAIRS - 1) / (GROUPS * GROUP_PAIRS);
        n = s.n_tiles * n_pair_tiles;
    }
};

static __device__ __forceinline__ void produce(const struct moe_many_params &p, const struct hopper_state &s,
                                               struct pipe<struct stages> pipe)
{
    struct items items(p, s);
    u32 n_chunks = 2 * moe_steps(p.n_cols);

    for (u32 item = blockIdx.x; item < items.n; item += gridDim.x) {
        struct tile t = tile_of(s, item / items.n_pair_tiles);
        u32 bytes = t.n * 1024;
        u64 next = (u64)eights(s.count[t.expert]) * 1024; // from 64 columns to the next ones
        const u8 *from = p.rows + (u64)s.region[t.expert] * moe_packed_bytes(p.n_cols) + t.first * 1024;
        for (u32 i = 0; i < n_chunks; i++, from += next, pipe.next()) {
            u32 full = pipe.full + 8 * pipe.at;
            wait_for_stage(pipe.empty + 8 * pipe.at, pipe.phase ^ 1);
            expect_bytes(full, bytes);
            bulk_copy(pipe.stage(), from, bytes, full);
        }
    }
}

// What a lane holds of its two rows of weights: 128 columns dequantised, and the next ones as loaded.
template <u32 F> struct lane_weights {
    struct strip<F> next[DEPTH][2];
    struct prepared<F> now[2];
    u32 item, step, n_steps; // what is loaded next
    u32 row[2];

    // Of eight neighbouring pairs lanes take the first, third, second, fourth and so on: as the columns of
    // hidden rows lie when they are packed.
    static __device__ __forceinline__ u32 pair_of(u32 item, const struct items &items)
    {
        u32 g = threadIdx.x % 32 / 4;
        return item % items.n_pair_tiles * (GROUPS * GROUP_PAIRS) + threadIdx.x / 32 * 8 +
               ((g & 4) | (g & 1) << 1 | (g >> 1 & 1));
    }
    __device__ __forceinline__ void find(const struct moe_many_params &p, const struct hopper_state &s,
                                         const struct items &items)
    {
        u32 pair = min(pair_of(item, items), p.n_pairs - 1),
            first = tile_of(s, item / items.n_pair_tiles).expert * p.n_out;
        row[0] = first + (p.gated ? pair : 2 * pair);
        row[1] = first + (p.gated ? pair : min(2 * pair + 1, p.n_out - 1));
    }
    __device__ __forceinline__ void load(const struct moe_many_params &p, const struct hopper_state &s,
                                         const struct items &items, struct strip<F> (&to)[2])
    {
        strip_load<F>(to[0], p.w[0], row[0], step * 4 + threadIdx.x % 4);
        strip_load<F>(to[1], p.w[1], row[1], step * 4 + threadIdx.x % 4);
        if (++step < n_steps)
            return;
        if (item + gridDim.x < items.n) {
            step = 0;
            item += gridDim.x;
            find(p, s, items);
        } else {
            step--; // loaded for nothing
        }
    }
    __device__ __forceinline__ void begin(const struct moe_many_params &p, const struct hopper_state &s,
                                          const struct items &items)
    {
        item = blockIdx.x;
        step = 0;
        n_steps = moe_steps(p.n_cols);
        find(p, s, items);
#pragma unroll
        for (u32 i = 0; i < DEPTH; i++)
            load(p, s, items, next[i]);
    }
    template <u32 H> __device__ __forceinline__ void fragments(u32 (&a)[4][4])
    {
        fragment<4 * H>(a[0]);
        fragment<4 * H + 1>(a[1]);
        fragment<4 * H + 2>(a[2]);
        fragment<4 * H + 3>(a[3]);
    }
    template <u32 S> __device__ __forceinline__ void fragment(u32 (&a)[4])
    {
        strip_step<F, S>(now[0], a[0], a[2]);
        strip_step<F, S>(now[1], a[1], a[3]);
    }
};

template <u32 W> struct products { // of a warpgroup
    f32 d[W / 8][4];
    u32 before; // the stage that products in flight still read, or ~0

    __device__ __forceinline__ void clear()
    {
        before = ~0u;
#pragma unroll
        for (u32 n = 0; n < W / 8; n++) {
            d[n][0] = d[n][1] = d[n][2] = d[n][3] = 0;
            asm volatile("" : "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3]));
        }
    }
    __device__ __forceinline__ void leave_before(const struct pipe<struct stages> &pipe)
    {
        if (before != ~0u && threadIdx.x % 32 == 0)
            leave_stage(pipe.empty + 8 * before);
    }
    // 64 columns. The products just begun run on while the next are prepared; those before them are done.
    __device__ __forceinline__ void multiply(struct pipe<struct stages> &pipe, u32 (&a)[4][4])
    {
        wait_for_stage(pipe.full + 8 * pipe.at, pipe.phase);
        u64 rows = tile_descriptor(pipe.stage());
        wgmma_fence(a);
#pragma unroll
        for (u32 k = 0; k < 4; k++)
            wgmma(d, a[k], rows + NEXT_COLUMNS * k);
        wgmma_order();
        leave_before(pipe);
        before = pipe.at;
        pipe.next();
    }
    __device__ __forceinline__ void finish(const struct pipe<struct stages> &pipe)
    {
        wgmma_finish();
        leave_before(pipe);
    }
};

template <u32 F, u32 W>
static __device__ __forceinline__ void
multiply_step(const struct moe_many_params &p, const struct hopper_state &s, const struct items &items,
              u32 at, struct lane_weights<F> &w, struct products<W> &x, struct pipe<struct stages> &pipe)
{
    u32 a[2][4][4];

    strip_prepare<F>(w.now[0], w.next[at][0]);
    strip_prepare<F>(w.now[1], w.next[at][1]);
    w.load(p, s, items, w.next[at]); // in place: a move between slots would wait for the load in flight
    w.template fragments<0>(a[0]);
    x.multiply(pipe, a[0]);
    w.template fragments<1>(a[1]);
    x.multiply(pipe, a[1]);
}

// The columns of pair 2 t' and 2 t' + 1 of the warp's eight for row g': the transposed eights of a fragment.
static __device__ __forceinline__ u32 transposed(u32 v)
{
    u32 r;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(v));
    return r;
}

struct tile_end { // where an item's results go
    const struct moe_many_params &p;
    const struct hopper_state &s;
    struct tile t;
    u32 pair, count; // of this lane; rows that exist

    // Hidden rows, packed as moe_pack packs rows: the warp's eight columns are two runs of four, of one row
    // two words of two columns in each of two 16-byte words.
    template <u32 W> __device__ __forceinline__ void up(f32 (&d)[W / 8][4], f32 back) const
    {
        u32 lane = threadIdx.x % 32, g = lane / 4, q = lane % 4, column = pair & ~7u,
            run = column % 16 / 4 + q / 2;
        u32 step = 2 * run + column % 32 / 16, word = step % 4 * 2 + (q & 1);
        u64 chunk = (u64)eights(s.count[t.expert]) * 1024;
        u8 *to = p.out + (u64)s.region[t.expert] * moe_packed_bytes(p.n_out) +
                 (column / 128 * 2 + run / 2) * chunk + t.first * 1024 + g * 128 + (word ^ g) * 16 +
                 column % 128 / 32 * 4;
        bool beside_zeros = p.n_out % 128 && column / 128 == p.n_out / 128;
        f32 gate = p.bias[0] ? p.bias[0][t.expert * p.n_out + pair] : 0,
            up = p.bias[1] ? p.bias[1][t.expert * p.n_out + pair] : 0;
#pragma unroll
        for (u32 n = 0; n < W / 8; n++) {
            if (n >= t.n)
                break;
            f32 v[2];
#pragma unroll
            for (u32 i = 0; i < 2; i++)
                v[i] = experts_gated(p.activation, p.limit, d[n][i] * back + gate, d[n][2 + i] * back + up);
            *(u32 *)(to + n * 1024) = transposed(two_bf16(v[0], v[1]));
            if (beside_zeros) // as many columns as are missing
                *(u32 *)(to + n * 1024 + 8) = 0;
        }
    }
    // Two neighbouring columns of what is added for entries of rows 2 t and 2 t + 1 of each eight.
    template <u32 W>
    __device__ __forceinline__ void down(f32 (&d)[W / 8][4], f32 back, const u32 *entries) const
    {
        f32 first = p.bias[0] ? p.bias[0][t.expert * p.n_out + 2 * pair] : 0,
            second = p.bias[0] ? p.bias[0][t.expert * p.n_out + 2 * pair + 1] : 0;
        u8 *to = p.out + 4 * pair;
#pragma unroll
        for (u32 n = 0; n < W / 8; n++) {
            u32 row = n * 8 + threadIdx.x % 4 * 2;
            uint2 entry = *(const uint2 *)(entries + row);
            if (row < count)
                *(u32 *)(to + (u64)entry.x * p.n_out * 2) =
                    two_bf16(d[n][0] * back + first, d[n][2] * back + second);
            if (row + 1 < count)
                *(u32 *)(to + (u64)entry.y * p.n_out * 2) =
                    two_bf16(d[n][1] * back + first, d[n][3] * back + second);
        }
    }
};

template <u32 F, bool UP, u32 W>
static __device__ __forceinline__ void run_item(const struct moe_many_params &p, struct hopper_state &s,
                                                const struct items &items, u32 item, u32 turn,
                                                struct lane_weights<F> &w, struct pipe<struct stages> &pipe)
{
    struct products<W> x;
    u32 group = __shfl_sync(~0u, threadIdx.x / 128, 0), n_steps = moe_steps(p.n_cols);
    struct tile_end end = { p, s, tile_of(s, item / items.n_pair_tiles),
                            lane_weights<F>::pair_of(item, items), 0 };
    u32 *entries = s.entries[group][turn], at = threadIdx.x % 128;

    end.count = min(s.count[end.t.expert] - end.t.first * 8, end.t.n * 8);
    if (!UP) // read behind the barrier
        for (u32 i = at; i < end.count; i += 128)
            entries[i] = p.entries[s.region[end.t.expert] + end.t.first * 8 + i];
    x.clear();
    for (u32 step = 0; step < n_steps; step += DEPTH) {
        multiply_step(p, s, items, 0, w, x, pipe);
        if (step + 1 < n_steps)
            multiply_step(p, s, items, 1, w, x, pipe);
    }
    x.finish(pipe);
    if (n_steps % DEPTH) { // the next item begins with slot 0
        struct strip<F> first[2] = {
            w.next[0][0], w.next[0][1]
        };
        w.next[0][0] = w.next[1][0];
        w.next[0][1] = w.next[1][1];
        w.next[1][0] = first[0];
        w.next[1][1] = first[1];
    }
    if (!UP)
        asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
    if (end.pair >= p.n_pairs && !UP)
        return;
    if (UP)
        end.template up<W>(x.d, strip<F>::scale_back);
    else
        end.template down<W>(x.d, strip<F>::scale_back, entries);
}

template <u32 F, bool UP>
static __device__ __forceinline__ void consume(const struct moe_many_params &p, struct hopper_state &s,
                                               struct pipe<struct stages> pipe)
{
    struct items items(p, s);
    struct lane_weights<F> w;
    u32 turn = 0;

    if (blockIdx.x >= items.n)
        return;
    w.begin(p, s, items);
#define WIDTH(W) run_item<F, UP, W>(p, s, items, item, turn, w, pipe)
    for (u32 item = blockIdx.x; item < items.n; item += gridDim.x, turn ^= 1) {
        u32 n = tile_of(s, item / items.n_pair_tiles).n;
        if (n <= 4)
            WIDTH(32);
        else if (n <= 8)
            WIDTH(64);
        else if (n <= 12)
            WIDTH(96);
        else if (n <= 16)
            WIDTH(128);
        else if (n <= 18)
            WIDTH(144);
        else
            WIDTH(160);
    }
#undef WIDTH
}

template <u32 F, bool UP> static __device__ __forceinline__ void moe_hopper(const struct moe_many_params &p)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    struct hopper_state &s = *(struct hopper_state *)(shared + MOE_STAGES * stages::stage_bytes);
    struct pipe<struct stages> pipe = {
    };

    pipe.data = shared_address(shared);
    pipe.full = shared_address(s.full);
    pipe.empty = shared_address(s.empty);
    if (threadIdx.x == 0) {
        s.n_tiles = 0;
        for (u32 i = 0; i < MOE_STAGES; i++) {
            barrier_begin(pipe.full + 8 * i, 1);
            barrier_begin(pipe.empty + 8 * i, CONSUMERS / 32);
        }
        show_barriers();
    }
    wait_for_inputs();
    list_tiles(p, s);
    if (threadIdx.x >= CONSUMERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(24));
        if (__shfl_sync(~0u, threadIdx.x / 32, 0) == CONSUMERS / 32 && elect_one())
            produce(p, s, pipe);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(240));
        consume<F, UP>(p, s, pipe);
    }
}

#define MOE_HOPPER(NAME, name)                                                   \
    extern "C" __global__ void __launch_bounds__(HOPPER_MOE_THREADS, 1)          \
        moe_hopper_up_##name(const __grid_constant__ struct moe_many_params p)   \
    {                                                                            \
        moe_hopper<QUANT_##NAME, true>(p);                                       \
    }                                                                            \
    extern "C" __global__ void __launch_bounds__(HOPPER_MOE_THREADS, 1)          \
        moe_hopper_down_##name(const __grid_constant__ struct moe_many_params p) \
    {                                                                            \
        moe_hopper<QUANT_##NAME, false>(p);                                      \
    }
MOE_HOPPER_FORMATS(MOE_HOPPER)
#endif
