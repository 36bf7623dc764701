// moe_hopper.cu - GEMM of many rows with the experts that they chose, for Hopper by wgmma: one launch for all
// experts.
//
// Computes, for each expert and its rows x, gate and up of x with the activation (moe_hopper_up), or down of
// hidden rows (moe_hopper_down).
//
//                        up to 160 rows of one expert (N side)
//                     +--------------------------------------+
//   2 groups of   32  | warpgroup 0: 64 weight rows (M side) |   stage: 128 columns of the rows and weights
//   32 pairs      32  | warpgroup 1                          |   as they lie in their planes
//                     +--------------------------------------+   persistent: one block an SM
//
// Tiles: each expert's rows are cut into as few equal parts as fit, so that its weights are read and
// dequantised once where they are no more than a tile takes; largest parts first, a tile's pairs side by
// side, so that its rows come from the L2. The list of tiles is made by every block for itself from the
// experts' counts.
// Pipeline: a producer warpgroup keeps 3 or 4 stages of shared memory full (moe_stages.cuh); a consumer warp
// dequantises four fragments while four products run.
// Widths: a tile pays for 32, 64, 96, 128, 144 or 160 rows.
// Epilogue: from registers. Hidden numbers become the packed rows of the next launch, transposed by
// movmatrix; what down adds goes to its entry's row as bf16.
#include "gemm/cuda/fragments.cuh"
#include "gemm/cuda/wgmma.cuh"
#include "ops/experts/experts_gated.cuh"
#include "ops/moe/moe_stages.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

// Rows of a region.
template <class K>
static __device__ __forceinline__ void produce(const struct moe_many_params &p, const struct hopper_state &s,
                                               struct pipe<K> pipe)
{
    struct items items(p, s);
    struct weights_source<K> weights;
    bool first_warp = __shfl_sync(~0u, threadIdx.x / 32, 0) == MOE_CONSUMERS / 32;
    u64 policy = cache_policy(false);

    for (u32 item = blockIdx.x; item < items.n; item += gridDim.x) {
        struct tile t = tile_of(s, item / items.n_pair_tiles);
        u32 bytes = t.n * 1024;
        u64 next = (u64)eights(s.count[t.expert]) * 1024; // from 64 columns to the next ones
        const u8 *from = p.rows + (u64)s.region[t.expert] * moe_packed_bytes(p.n_cols) + t.first * 1024;
        weights.begin(p, t.expert, items.first_pair(item));
        for (u32 i = 0; i < moe_steps(p.n_cols); i++, from += 2 * next, pipe.next()) {
            u32 full = pipe.full + 8 * pipe.at, stage = pipe.stage();
            wait_for_stage(pipe.empty + 8 * pipe.at, pipe.phase ^ 1);
            if (first_warp && elect_one()) {
                expect_bytes(full, 2 * bytes);
                bulk_copy(stage, from, bytes, full);
                bulk_copy(stage + MOE_HALF, from + next, bytes, full);
            }
            weights.copy(p, i, stage + K::rows_bytes, policy);
            arrive_with_words(full);
        }
    }
}

template <class K, u32 W> struct products { // of a warpgroup
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
    __device__ __forceinline__ void leave_before(u32 empty)
    {
        if (before != ~0u && threadIdx.x % 32 == 0)
            leave_stage(empty + 8 * before);
    }
    // 64 columns. The products just begun run on while the next are prepared; those before them are done.
    template <u32 H>
    __device__ __forceinline__ void multiply(const struct prepared<K::F> (&now)[2], u32 (&a)[4][4], u64 rows)
    {
        fragment<K::F, 4 * H>(now, a[0]);
        fragment<K::F, 4 * H + 1>(now, a[1]);
        fragment<K::F, 4 * H + 2>(now, a[2]);
        fragment<K::F, 4 * H + 3>(now, a[3]);
        wgmma_fence(a);
#pragma unroll
        for (u32 k = 0; k < 4; k++)
            wgmma(d, a[k], rows + NEXT_COLUMNS * k);
        wgmma_order();
    }
    __device__ __forceinline__ void run(u32 n_steps, const u8 *shared, const struct code_place<K> &place,
                                        struct pipe<K> &pipe)
    {
        clear();
        for (u32 step = 0; step < n_steps; step++, pipe.next()) {
            struct prepared<K::F> now[2];
            u32 a[2][4][4], at = __shfl_sync(~0u, pipe.at, 0); // so that addresses are computed once a warp
            wait_for_stage(pipe.full + 8 * at, pipe.phase);
            place.load(shared + at * K::stage_bytes + K::rows_bytes, now);
            u64 rows = tile_descriptor(pipe.data + at * K::stage_bytes);
            multiply<0>(now, a[0], rows);
            leave_before(pipe.empty); // the stage before has been multiplied
            multiply<1>(now, a[1], rows + MOE_HALF / 16);
            before = at;
        }
        wgmma_finish();
        leave_before(pipe.empty);
    }
};

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

    // Hidden rows, packed as moe_pack packs rows: the warp's eight columns are a 16-byte word of each row.
    template <u32 W> __device__ __forceinline__ void up(f32 (&d)[W / 8][4], f32 back) const
    {
        u32 lane = threadIdx.x % 32, g = lane / 4, column = hidden_column(p, pair / 8 * 8 + lane % 4 * 2);
        u32 step = column % 16 / 4 * 2 + column % 32 / 16, word = step % 4 * 2 + column % 2;
        u64 chunk = (u64)eights(s.count[t.expert]) * 1024;
        u8 *to = p.out + (u64)s.region[t.expert] * moe_packed_bytes(p.n_out) +
                 (column / 128 * 2 + step / 4) * chunk + t.first * 1024 + g * 128 + (word ^ g) * 16 +
                 column % 128 / 32 * 4;
        bool beside_zeros = column / 128 * 128 + 128 > p.n_out;
        u32 own = t.expert * p.n_out + hidden_column(p, pair);
        f32 gate = p.bias[0] ? p.bias[0][own] : 0, up = p.bias[1] ? p.bias[1][own] : 0;
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

template <class K, u32 W>
static __device__ __forceinline__ void run_item(const struct moe_many_params &p, struct hopper_state &s,
                                                const struct items &items, u32 item, u32 turn,
                                                const struct code_place<K> &place, struct pipe<K> &pipe)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    struct products<K, W> x;
    u32 group = __shfl_sync(~0u, threadIdx.x / 128, 0), *entries = s.entries[group][turn];

    if (!K::UP) { // read behind the barrier
        struct tile t = tile_of(s, item / items.n_pair_tiles);
        for (u32 i = threadIdx.x % 128; i < rows_of(s, t); i += 128)
            entries[i] = p.entries[s.region[t.expert] + t.first * 8 + i];
    }
    x.run(moe_steps(p.n_cols), shared, place, pipe);
    struct tile t = tile_of(s, item / items.n_pair_tiles);
    struct tile_end end = { p, s, t, items.first_pair(item) + threadIdx.x / 32 * 8 + threadIdx.x % 32 / 4,
                            rows_of(s, t) };
    if (!K::UP)
        asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
    if (end.pair >= p.n_pairs)
        return;
    if (K::UP)
        end.template up<W>(x.d, strip<K::F>::scale_back);
    else
        end.template down<W>(x.d, strip<K::F>::scale_back, entries);
}

template <class K>
static __device__ __forceinline__ void consume(const struct moe_many_params &p, struct hopper_state &s,
                                               struct pipe<K> pipe)
{
    struct items items(p, s);
    struct code_place<K> place;
    u32 turn = 0;

#define WIDTH(W) run_item<K, W>(p, s, items, item, turn, place, pipe)
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

template <class K> static __device__ __forceinline__ void moe_hopper(const struct moe_many_params &p)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    struct hopper_state &s = *(struct hopper_state *)(shared + K::n_stages * K::stage_bytes);
    struct pipe<K> pipe = {
    };

    pipe.data = shared_address(shared);
    pipe.full = shared_address(s.full);
    pipe.empty = shared_address(s.empty);
    if (threadIdx.x == 0) {
        s.n_tiles = 0;
        for (u32 i = 0; i < K::n_stages; i++) {
            barrier_begin(pipe.full + 8 * i, 128 + 1);
            barrier_begin(pipe.empty + 8 * i, MOE_CONSUMERS / 32);
        }
        show_barriers();
    }
    wait_for_inputs();
    list_tiles(p, s);
    if (threadIdx.x >= MOE_CONSUMERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(40));
        produce(p, s, pipe);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(232));
        consume(p, s, pipe);
    }
}

#define MOE_HOPPER(NAME, name)                                                   \
    extern "C" __global__ void __launch_bounds__(HOPPER_MOE_THREADS, 1)          \
        moe_hopper_up_##name(const __grid_constant__ struct moe_many_params p)   \
    {                                                                            \
        moe_hopper<struct moe_kernel<QUANT_##NAME, true>>(p);                    \
    }                                                                            \
    extern "C" __global__ void __launch_bounds__(HOPPER_MOE_THREADS, 1)          \
        moe_hopper_down_##name(const __grid_constant__ struct moe_many_params p) \
    {                                                                            \
        moe_hopper<struct moe_kernel<QUANT_##NAME, false>>(p);                   \
    }
MOE_HOPPER_FORMATS(MOE_HOPPER)
#endif
