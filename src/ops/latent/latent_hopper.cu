// latent_hopper.cu - latent_attend.cu for Hopper, for pages of F16 and a past that is not split: its products
// by wgmma. (The division of work among warpgroups follows FlashMLA; DeepSeek-AI, 2025.)
//
// Computes   out = softmax(scale * q . K) K[:, 0:512]   for 64 queries: some rows of the step times some
// heads, which all read the same keys.
//
//                 warpgroup 0              warpgroup 1             warpgroup 2
//               +-------------+          +------------------+    +------------------+
//   64 queries  |  64 scores, |  weights |  dims 0 to 255   |    |  dims 256 to 511 |
//               |  softmax    |  ----->  |  of the sums     |    |                  |
//               +-------------+          +------------------+    +------------------+
//
// A page lies in shared memory as in memory, [576][16 tokens], its 16-byte words swizzled within 256 bytes.
// The first product reads it with tokens side by side as columns, the second with tokens as what is summed.
// Pipeline: two tiles of 64 keys. Warpgroups 1 and 2 copy the next but one tile's dims over those that they
// have added; the scores of the next tile are made meanwhile. Tokens behind the last become zero in the copy.
// Queries are scaled by a power of two each, as absorbed queries overflow fp16.
// Epilogue: fp32 rows. Images of other architectures hold no such kernel.
#include "gemm/cuda/wgmma.cuh"
#include "ops/latent/latent_queries.cuh"
#include "ops/latent/latent_runs.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

enum {
    N_THREADS = LATENT_HOPPER_THREADS,
    N_WARPS = N_THREADS / 32,
    TILE_PAGES = LATENT_TILE / PAGE_TOKENS,
    PAGE_BYTES = LATENT_KEY * PAGE_TOKENS * 2,
    SOME_DIMS = 64, // of queries, in rows of 128 bytes
    SOME_BYTES = LATENT_TILE * 128,
    OWN = LATENT_VALUE / 2, // dims of a warpgroup
    KEY_REST = (LATENT_KEY - LATENT_VALUE) / 2
};

struct hopper_room { // shared memory
    u8 q[LATENT_KEY / SOME_DIMS][SOME_BYTES];
    u8 keys[2][TILE_PAGES * PAGE_BYTES];
    u8 weights[SOME_BYTES];
    f32 rescale[LATENT_TILE]; // what earlier sums are multiplied by
    f32 row_sum[LATENT_TILE];
    f32 scale[LATENT_TILE]; // of scores: what a query was divided by
};
STATIC_ASSERT(sizeof(struct hopper_room) == LATENT_HOPPER_BYTES);

// Barriers of a warpgroup that goes on and others that wait. Of keys two, since a tile may arrive early.
enum { KEYS_IN = 1, WEIGHTS_IN = 3, WEIGHTS_READ, SUMS_IN };
static __device__ __forceinline__ void tell(u32 barrier)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"((int)N_THREADS) : "memory");
}
static __device__ __forceinline__ void await(u32 barrier)
{
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"((int)N_THREADS) : "memory");
}
static __device__ __forceinline__ void show_stores() // to wgmma
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- products

// Tokens 16 by 16 side by side, a page apart; dims in eights.
static __device__ __forceinline__ u64 key_descriptor(u32 at)
{
    return 3ull << 62 | (u64)(256 >> 4) << 32 | (u64)(PAGE_BYTES >> 4) << 16 | (at & 0x3FFFF) >> 4;
}
// Rows of 16 tokens, dims in eights.
static __device__ __forceinline__ u64 value_descriptor(u32 at)
{
    return 3ull << 62 | (u64)(256 >> 4) << 32 | 1ull << 16 | (at & 0x3FFFF) >> 4;
}
static __device__ __forceinline__ void add_scores(f32 (&d)[8][4], u64 q, u64 keys)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" N32 "}, %32, %33, 1, 1, 1, 0, 1;"
                 : D32(0)
                 : "l"(q), "l"(keys));
}
static __device__ __forceinline__ void add_values(f32 (&d)[32][4], u64 weights, u64 values)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" N128 "}, %128, %129, 1, 1, 1, 0, 0;"
                 : D128(0)
                 : "l"(weights), "l"(values));
}
template <u32 N> static __device__ __forceinline__ void end_products(f32 (&d)[N][4])
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    wgmma_finish();
    settle(d);
}

// ---- loads

// A warp brings every twelfth query.
static __device__ __forceinline__ void load_queries(const struct latent_attend_params &p,
                                                    struct hopper_room &room)
{
    constexpr u32 n = LATENT_KEY / SOME_DIMS;
    u32 lane = threadIdx.x % 32;

#pragma unroll 2
    for (u32 i = threadIdx.x / 32; i < LATENT_TILE; i += N_WARPS) {
        u32 row = query_row(p, i), place = i * 128 + ((lane / 4 ^ (i & 7)) * 16) + lane % 4 * 4;
        const float2 *q =
            (const float2 *)(p.q + ((u64)row * p.args.n_heads + query_head(p, i)) * LATENT_KEY) + lane;
        float2 x[n];
        f32 most = 0;
#pragma unroll
        for (u32 k = 0; k < n; k++) {
            x[k] = row == NOT_SEEN ? make_float2(0, 0) : q[32 * k];
            most = fmaxf(most, fmaxf(fabsf(x[k].x), fabsf(x[k].y)));
        }
        u32 exponent = power_below(warp_max(most));
        f32 divide = __uint_as_float((254 - exponent) << 23);
#pragma unroll
        for (u32 k = 0; k < n; k++)
            *(u32 *)&room.q[k][place] = two_numbers<false>(x[k].x * divide, x[k].y * divide);
        if (lane == 0)
            room.scale[i] = __uint_as_float(exponent << 23) * p.args.scale * LOG2_E;
    }
}

struct key_tile { // of keys [first, first + 64) of a run
    const u8 *at[TILE_PAGES];
    u32 first;
};

static __device__ __forceinline__ struct key_tile pages_at(const struct latent_attend_params &p,
                                                           const struct query_run &r, u32 first)
{
    const u32 *table = p.table + (u64)r.slot * p.args.pages.max_pages + first / PAGE_TOKENS;
    struct key_tile t = { .first = first };

#pragma unroll
    for (u32 i = 0; i < TILE_PAGES; i++) {
        u32 number = first + i * PAGE_TOKENS < r.to ? table[i] : 0;
        t.at[i] = (const u8 *)p.pages + (u64)number * PAGE_BYTES;
    }
    return t;
}

// Eight tokens of a dim; the ones at `token` and behind it as far as they are in the run.
static __device__ __forceinline__ void copy_tokens(u32 to, const u8 *from, u32 token,
                                                   const struct query_run &r)
{
    u32 n = token < r.to ? min(r.to - token, 8u) : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(2 * n) : "memory");
}

// The dims that a warpgroup adds, and a part of those that no one does.
static __device__ __forceinline__ void load_keys(const struct key_tile &t, const struct query_run &r,
                                                 u32 half, u32 to)
{
    u32 i = threadIdx.x % 128, word = i % 2, dim = half * OWN + i / 2,
        rest = LATENT_VALUE + half * KEY_REST + i % 64 / 2, swizzled = dim / 4 % 2 ^ word;

#pragma unroll
    for (u32 page = 0; page < TILE_PAGES; page++)
#pragma unroll
        for (u32 k = 0; k < OWN; k += 64)
            copy_tokens(to + page * PAGE_BYTES + (dim + k) * 32 + swizzled * 16,
                        t.at[page] + (dim + k) * 32 + word * 16, t.first + page * PAGE_TOKENS + word * 8, r);
#pragma unroll
    for (u32 pages = 0; pages < TILE_PAGES; pages += 2) {
        u32 page = pages + i / 64;
        copy_tokens(to + page * PAGE_BYTES + rest * 32 + (rest / 4 % 2 ^ word) * 16,
                    (i < 64 ? t.at[pages] : t.at[pages + 1]) + rest * 32 + word * 16,
                    t.first + page * PAGE_TOKENS + word * 8, r);
    }
}
template <u32 PENDING> static __device__ __forceinline__ void wait_for_keys()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
    show_stores();
}
static __device__ __forceinline__ void end_loads()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// ---- warpgroup 0

struct hopper_scores {
    f32 s[8][4], row_max[2], row_sum[2]; // of queries g and g + 8 of the warp's 16
    u32 position[2];
};

// Scores become weights, for the others to read.
static __device__ __forceinline__ void weigh_keys(struct hopper_room &room, struct hopper_scores &a,
                                                  u32 first, bool masked, bool written)
{
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, weights[2][8];
    f32 rescale[2];

#pragma unroll
    for (u32 h = 0; h < 2; h++) {
        f32 scale = room.scale[warp * 16 + lane / 4 + 8 * h], most = -INFINITY_F32;
#pragma unroll
        for (u32 j = 0; j < 8; j++)
#pragma unroll
            for (u32 c = 0; c < 2; c++) {
                f32 &s = a.s[j][2 * h + c];
                if (masked && first + 8 * j + lane % 4 * 2 + c > a.position[h])
                    s = -INFINITY_F32;
                most = fmaxf(most, s);
            }
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
        most = fmaxf(a.row_max[h], most * scale); // each query sees the first key, so this is a number
        rescale[h] = exp2_of(a.row_max[h] - most);
        a.row_max[h] = most;
        a.row_sum[h] *= rescale[h];
#pragma unroll
        for (u32 j = 0; j < 8; j++) {
            f32 low = exp2_of(a.s[j][2 * h] * scale - most), high = exp2_of(a.s[j][2 * h + 1] * scale - most);
            a.row_sum[h] += low + high;
            weights[h][j] = two_numbers<false>(low, high);
        }
    }
    if (written)
        await(WEIGHTS_READ);
#pragma unroll
    for (u32 h = 0; h < 2; h++) {
        u32 query = warp * 16 + lane / 4 + 8 * h;
#pragma unroll
        for (u32 j = 0; j < 8; j++)
            *(u32 *)&room.weights[query * 128 + (j ^ (query & 7)) * 16 + lane % 4 * 4] = weights[h][j];
        if (lane % 4 == 0)
            room.rescale[query] = rescale[h];
    }
    show_stores();
    tell(WEIGHTS_IN);
}

// written: weights lie in shared memory, which may be read yet.
static __device__ __forceinline__ void score_run(const struct latent_attend_params &p,
                                                 struct hopper_room &room, const struct query_run &r,
                                                 bool written)
{
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    struct hopper_scores a = { .row_max = { -INFINITY_F32, -INFINITY_F32 } };
    u64 q = tile_descriptor(shared_address(room.q));

#pragma unroll
    for (u32 h = 0; h < 2; h++) {
        u32 row = query_row(p, warp * 16 + lane / 4 + 8 * h);
        a.position[h] = row == NOT_SEEN ? NOT_SEEN : step_positions(p.step)[row];
    }
    for (u32 first = 0; first < r.to; first += LATENT_TILE, written = true) {
        u32 which = first / LATENT_TILE % 2;
        u64 keys = key_descriptor(shared_address(room.keys[which]));
#pragma unroll
        for (u32 j = 0; j < 8; j++)
            a.s[j][0] = a.s[j][1] = a.s[j][2] = a.s[j][3] = 0;
        settle(a.s);
        await(KEYS_IN + which);
        wgmma_fence();
#pragma unroll
        for (u32 k = 0; k < LATENT_KEY / 16; k++)
            add_scores(a.s, q + k / 4 * (SOME_BYTES >> 4) + k % 4 * NEXT_COLUMNS, keys + k * (512 >> 4));
        end_products(a.s);
        weigh_keys(room, a, first, first + LATENT_TILE > r.position + 1, written);
    }
#pragma unroll
    for (u32 h = 0; h < 2; h++) {
        f32 sum = a.row_sum[h] + __shfl_xor_sync(~0u, a.row_sum[h], 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if (lane % 4 == 0)
            room.row_sum[warp * 16 + lane / 4 + 8 * h] = sum;
    }
    tell(SUMS_IN);
}

// ---- warpgroups 1 and 2

static __device__ __forceinline__ void rescale_sums(const struct hopper_room &room, f32 (&sums)[OWN / 8][4])
{
    u32 query = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    f32 rescale[2] = { room.rescale[query], room.rescale[query + 8] };

    if (__all_sync(~0u, rescale[0] == 1 && rescale[1] == 1))
        return;
#pragma unroll
    for (u32 n = 0; n < OWN / 8; n++)
#pragma unroll
        for (u32 c = 0; c < 4; c++)
            sums[n][c] *= rescale[c / 2];
}

static __device__ __forceinline__ void store_sums(const struct latent_attend_params &p,
                                                  const struct hopper_room &room, const struct query_run &r,
                                                  u32 half, const f32 (&sums)[OWN / 8][4])
{
#pragma unroll
    for (u32 h = 0; h < 2; h++) {
        u32 query = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4 + 8 * h, row = query_row(p, query);
        if (query < r.first || query >= r.end || row == NOT_SEEN)
            continue;
        f32 factor = 1 / room.row_sum[query];
        f32 *to = p.out + ((u64)row * p.args.n_heads + query_head(p, query)) * LATENT_VALUE + half * OWN +
                  threadIdx.x % 4 * 2;
#pragma unroll
        for (u32 n = 0; n < OWN / 8; n++)
            *(float2 *)(to + 8 * n) = make_float2(sums[n][2 * h] * factor, sums[n][2 * h + 1] * factor);
    }
}

// The first two tiles' keys.
static __device__ __forceinline__ void
begin_run(const struct latent_attend_params &p, struct hopper_room &room, const struct query_run &r, u32 half)
{
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        if (i * LATENT_TILE < r.to)
            load_keys(pages_at(p, r, i * LATENT_TILE), r, half, shared_address(room.keys[i]));
        end_loads();
    }
}

static __device__ __forceinline__ void add_run(const struct latent_attend_params &p, struct hopper_room &room,
                                               const struct query_run &r, u32 half)
{
    f32 sums[OWN / 8][4] = {};
    u64 weights = tile_descriptor(shared_address(room.weights));

    wait_for_keys<1>();
    tell(KEYS_IN);
    for (u32 first = 0; first < r.to; first += LATENT_TILE) {
        u32 which = first / LATENT_TILE % 2, keys = shared_address(room.keys[which]);
        bool more = first + 2 * LATENT_TILE < r.to;
        struct key_tile next = pages_at(p, r, more ? first + 2 * LATENT_TILE : 0);
        if (first + LATENT_TILE < r.to) {
            wait_for_keys<0>();
            tell(KEYS_IN + (which ^ 1));
        }
        await(WEIGHTS_IN);
        rescale_sums(room, sums);
        settle(sums);
        wgmma_fence();
#pragma unroll
        for (u32 page = 0; page < TILE_PAGES; page++)
            add_values(sums, weights + page * NEXT_COLUMNS,
                       value_descriptor(keys + half * OWN * 32) + page * (PAGE_BYTES >> 4));
        end_products(sums);
        tell(WEIGHTS_READ);
        if (more)
            load_keys(next, r, half, keys);
        end_loads();
    }
    await(SUMS_IN);
    store_sums(p, room, r, half, sums);
}

// grid: (1, tiles of heads, tiles of rows)
extern "C" __global__ void __launch_bounds__(N_THREADS, 1)
    latent_hopper(const __grid_constant__ struct latent_attend_params p)
{
    extern __shared__ __align__(1024) u8 shared[];
    struct hopper_room &room = *(struct hopper_room *)shared;
    u32 group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    bool begun = false;

    wait_for_inputs();
    for (u32 first = 0; first < p.tile_rows * p.tile_heads && query_row(p, first) != NOT_SEEN;) {
        struct query_run r = run_at(p, first);
        u32 row = query_row(p, first);
        if (latent_are_expanded(p.runs, row, row + 1)) { // a run of rows is expanded as a whole
            first = r.end;
            continue;
        }
        if (group > 0)
            begin_run(p, room, r, group - 1);
        if (!begun) {
            load_queries(p, room);
            show_stores();
            __syncthreads();
        }
        if (group == 0)
            score_run(p, room, r, begun);
        else
            add_run(p, room, r, group - 1);
        first = r.end;
        begun = true;
    }
    if (group == 0 && begun)
        await(WEIGHTS_READ);
}
#endif
