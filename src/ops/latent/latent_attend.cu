// latent_attend.cu - attention over keys of 576 numbers whose first 512 are the values, on tensor cores;
// decoding and prefill alike (FlashAttention-2; Dao, 2023. The division of a tile among warps is FlashMLA's;
// DeepSeek-AI, 2025).
//
// Computes   out = softmax(scale * q . K) K[:, 0:512]   for 64 queries: some rows of the step times some
// heads, which all read the same keys. The past of one row may be split over blocks, by pages; latent_merge
// adds their parts in order. What a tile lacks of queries and pages is skipped.
//
//                   scores: 64 x 64 keys        sums: 64 x 512 dimensions
//                  +----------+----------+    +--------+--------+-- --+--------+
//   64 queries,    |  warp 0  |  warp 4  |    |        |        |     |        |
//   16 a warp of   |   ...    |   ...    |    | warp 0 | warp 1 | ... | warp 7 |
//   the scores     |  warp 3  |  warp 7  |    |        |        |     |        |
//                  +----------+----------+    +--------+--------+-- --+--------+
//   K: [4 pages][288][16] pairs, as in a page of BF16
//
// Pipeline: the next tile of keys is loaded while this one is used. Shared memory: queries, two tiles of
// keys, weights, factors. The 16-byte words of queries and weights are swizzled by the row; those of a line
// of 16 tokens by bit 1 of its number, so that the fragments of both products are read without bank
// conflicts.
// Operands: a pair of dimensions of two tokens is one 8-byte read for the second product: even dimensions go
// to one tile of mma, odd ones to the next. BF16 pages are multiplied in place. Keys of F16 and Q8_0 become
// pairs of fp16, and each query is scaled by a power of two, since absorbed queries overflow fp16.
// Epilogue: fp32 rows, or partial sums with their row_max and row_sum.
#include "ops/latent/latent_queries.cuh"

enum {
    N_WARPS = LATENT_ATTEND_THREADS / 32,
    LINES = LATENT_KEY / 2, // of a page: pairs of dimensions
    PAGE_WORDS = LINES * PAGE_TOKENS,
    TILE_PAGES = LATENT_TILE / PAGE_TOKENS,
};

struct query_room { // shared memory
    u32 q[LATENT_TILE][LINES];
    u32 keys[2][TILE_PAGES * PAGE_WORDS];
    u32 weights[LATENT_TILE][LATENT_TILE / 2];
    f32 row_maxes[2][LATENT_TILE]; // of a half of the keys
    f32 rescale[LATENT_TILE];      // what earlier sums are multiplied by
    f32 scale[LATENT_TILE];        // of scores: what a query was divided by
};
STATIC_ASSERT(sizeof(struct query_room) == LATENT_SHARED_BYTES);

struct query_sums { // of a warp's part
    f32 scores[4][4], row_max[2], row_sum[2];
    f32 sums[4][4][2][4]; // queries 16 i ..., dimensions 64 w + 16 j + 4 (lane % 4) ..., even and odd
};

static __device__ __forceinline__ void load_matrix(u32 (&v)[4], const void *at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"((u32)__cvta_generic_to_shared(at)));
}
template <bool BF16>
static __device__ __forceinline__ void multiply(f32 (&c)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    if (BF16)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                     "{%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                     "{%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The word of tokens 4 c ... of a line: where it lies in a page.
static __device__ __forceinline__ u32 word_place(u32 line, u32 c)
{
    return line * PAGE_TOKENS + (c ^ (line & 2)) * 4;
}

// Pair i of a row of queries or weights.
static __device__ __forceinline__ u32 pair_place(u32 row, u32 i)
{
    return (i / 4 ^ (row & 7)) * 4 + i % 4;
}

// Tiles of 16 queries that hold some.
static __device__ __forceinline__ u32 n_query_tiles(const struct latent_attend_params &p)
{
    return (p.tile_rows * p.tile_heads + 15) / 16;
}

// A warp brings every eighth query.
template <bool BF16>
static __device__ __forceinline__ void load_queries(const struct latent_attend_params &p,
                                                    struct query_room &room)
{
    u32 lane = threadIdx.x % 32;

#pragma unroll 4
    for (u32 n = 0; n < n_query_tiles(p) * 16 / N_WARPS; n++) {
        u32 i = threadIdx.x / 32 + n * N_WARPS;
        u32 row = query_row(p, i), *to = room.q[i];
        float2 x[LINES / 32];
        f32 most = 0;
#pragma unroll
        for (u32 k = 0; k < LINES / 32; k++) {
            x[k] = row == NOT_SEEN ? make_float2(0, 0)
                                   : ((const float2 *)(p.q + ((u64)row * p.args.n_heads + query_head(p, i)) *
                                                                 LATENT_KEY))[lane + 32 * k];
            most = fmaxf(most, fmaxf(fabsf(x[k].x), fabsf(x[k].y)));
        }
        u32 exponent = BF16 ? 127 : power_below(warp_max(most));
        f32 divide = __uint_as_float((254 - exponent) << 23);
#pragma unroll
        for (u32 k = 0; k < LINES / 32; k++)
            to[pair_place(i, lane + 32 * k)] = two_numbers<BF16>(x[k].x * divide, x[k].y * divide);
        if (lane == 0)
            room.scale[i] = __uint_as_float(exponent << 23) * p.args.scale * LOG2_E;
    }
}

static __device__ __forceinline__ void copy_16(u32 *to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(to)),
                 "l"(from));
}

// Tokens 4 c ... of line `line` of a page.
template <u32 FORMAT>
static __device__ __forceinline__ void load_word(const u8 *page, u32 line, u32 c, u32 *to)
{
    if (FORMAT == KV_BF16) {
        copy_16(to + word_place(line, c), page + (line * PAGE_TOKENS + 4 * c) * 4);
    } else if (FORMAT == KV_F16) {
        uint2 low = *(const uint2 *)(page + (2 * line * PAGE_TOKENS + 4 * c) * 2),
              high = *(const uint2 *)(page + ((2 * line + 1) * PAGE_TOKENS + 4 * c) * 2);
        *(uint4 *)(to + word_place(line, c)) =
            make_uint4(__byte_perm(low.x, high.x, 0x5410), __byte_perm(low.x, high.x, 0x7632),
                       __byte_perm(low.y, high.y, 0x5410), __byte_perm(low.y, high.y, 0x7632));
    } else {
        const u8 *at = page + (line / 2 * PAGE_TOKENS + 4 * c) * 4 + line % 2 * 2;
        const __half *scales =
            (const __half *)(page + PAGE_TOKENS * LATENT_KEY + (line / 16 * PAGE_TOKENS + 4 * c) * 2);
        u32 v[4];
#pragma unroll
        for (u32 t = 0; t < 4; t++) {
            f32 d = __half2float(scales[t]);
            v[t] = two_numbers<false>(d * (f32)(i8)at[4 * t], d * (f32)(i8)at[4 * t + 1]);
        }
        *(uint4 *)(to + word_place(line, c)) = make_uint4(v[0], v[1], v[2], v[3]);
    }
}

struct tile_pages { // of keys [first, first + 64) of a run, as far as it has some there
    u32 page[TILE_PAGES], n;
};

static __device__ __forceinline__ struct tile_pages pages_at(const struct latent_attend_params &p,
                                                             const struct query_run &r, u32 first)
{
    const u32 *table = p.table + (u64)r.slot * p.args.pages.max_pages + first / PAGE_TOKENS;
    struct tile_pages t = { .n = min((r.to - first + PAGE_TOKENS - 1) / PAGE_TOKENS, (u32)TILE_PAGES) };

#pragma unroll
    for (u32 i = 0; i < TILE_PAGES; i++)
        t.page[i] = i < t.n ? table[i] : 0;
    return t;
}

template <u32 FORMAT>
static __device__ __forceinline__ void load_keys(const struct latent_attend_params &p,
                                                 const struct tile_pages &t, u32 *to)
{
#pragma unroll
    for (u32 i = 0; i < TILE_PAGES; i++) {
        if (i >= t.n)
            break;
        const u8 *page = (const u8 *)p.pages + (u64)t.page[i] * page_head_bytes(FORMAT, LATENT_KEY);
        for (u32 w = threadIdx.x; w < PAGE_WORDS / 4; w += LATENT_ATTEND_THREADS)
            load_word<FORMAT>(page, w / 4, w % 4, to + i * PAGE_WORDS);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Behind the last key lies anything: in its page it must be zero as values, since a weight of zero does not
// select.
static __device__ __forceinline__ void clear_keys(u32 *keys, u32 n_valid)
{
    u32 *page = keys + n_valid / PAGE_TOKENS * PAGE_WORDS, token = threadIdx.x % PAGE_TOKENS;

    if (token < n_valid % PAGE_TOKENS || n_valid % PAGE_TOKENS == 0)
        return;
    for (u32 line = threadIdx.x / PAGE_TOKENS; line < LINES; line += LATENT_ATTEND_THREADS / PAGE_TOKENS)
        page[word_place(line, token / 4) + token % 4] = 0;
}

// Scores of the warp's 16 queries and 32 keys, if there are some of both.
template <bool BF16>
static __device__ __forceinline__ void score_keys(const struct latent_attend_params &p,
                                                  const struct query_room &room, const u32 *keys, u32 n_valid,
                                                  struct query_sums &s)
{
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, line = lane % 4, at[4];
    f32 odd[4][4] = {}; // steps in turn: a sum's next product waits for the one before
    const u32 *q = room.q[warp % 4 * 16 + lane % 16];

#pragma unroll
    for (u32 j = 0; j < 4; j++) {
        u32 key = warp / 4 * 32 + j * 8 + lane / 4, token = key % PAGE_TOKENS;
        at[j] = key / PAGE_TOKENS * PAGE_WORDS + word_place(line, token / 4) + token % 4;
#pragma unroll
        for (u32 c = 0; c < 4; c++)
            s.scores[j][c] = 0;
    }
    if (warp % 4 >= n_query_tiles(p) || warp / 4 * 32 >= n_valid)
        return;
#pragma unroll 6
    for (u32 k = 0; k < LATENT_KEY / 16; k++) {
        u32 a[4];
        load_matrix(a, q + ((2 * k + lane / 16) ^ (lane & 7)) * 4);
#pragma unroll
        for (u32 j = 0; j < 4; j++)
            multiply<BF16>(k % 2 ? odd[j] : s.scores[j], a, keys[at[j] + k * 8 * PAGE_TOKENS],
                           keys[at[j] + (k * 8 + 4) * PAGE_TOKENS]);
    }
#pragma unroll
    for (u32 j = 0; j < 4; j++)
#pragma unroll
        for (u32 c = 0; c < 4; c++)
            s.scores[j][c] += odd[j][c];
}

// Scores in powers of two; those of keys that a query does not see become -infinity. Then each half's
// highest.
static __device__ __forceinline__ void mask_scores(struct query_room &room, struct query_sums &s,
                                                   const u32 (&positions)[2], u32 first)
{
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;

#pragma unroll
    for (u32 h = 0; h < 2; h++) {
        u32 query = warp % 4 * 16 + lane / 4 + 8 * h;
        f32 row_max = -INFINITY_F32, scale = room.scale[query];
#pragma unroll
        for (u32 j = 0; j < 4; j++)
#pragma unroll
            for (u32 c = 0; c < 2; c++) {
                u32 key = first + warp / 4 * 32 + j * 8 + lane % 4 * 2 + c;
                f32 &score = s.scores[j][2 * h + c];
                score = positions[h] != NOT_SEEN && key <= positions[h] ? score * scale : -INFINITY_F32;
                row_max = fmaxf(row_max, score);
            }
        row_max = fmaxf(row_max, __shfl_xor_sync(~0u, row_max, 1));
        row_max = fmaxf(row_max, __shfl_xor_sync(~0u, row_max, 2));
        if (lane % 4 == 0)
            room.row_maxes[warp / 4][query] = row_max;
    }
}

// Scores become weights, for all warps to read.
template <bool BF16>
static __device__ __forceinline__ void weigh_keys(struct query_room &room, struct query_sums &s)
{
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;

#pragma unroll
    for (u32 h = 0; h < 2; h++) {
        u32 query = warp % 4 * 16 + lane / 4 + 8 * h;
        f32 row_max = fmaxf(s.row_max[h], fmaxf(room.row_maxes[0][query], room.row_maxes[1][query])),
            row_sum = 0;
        f32 base = row_max == -INFINITY_F32 ? 0 : row_max, rescale = exp2_of(s.row_max[h] - base);
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            f32 low = exp2_of(s.scores[j][2 * h] - base), high = exp2_of(s.scores[j][2 * h + 1] - base);
            row_sum += low + high;
            room.weights[query][pair_place(query, warp / 4 * 16 + j * 4 + lane % 4)] =
                two_numbers<BF16>(low, high);
        }
        s.row_max[h] = row_max;
        s.row_sum[h] = s.row_sum[h] * rescale + row_sum;
        if (warp < 4 && lane % 4 == 0)
            room.rescale[query] = rescale;
    }
}

template <u32 TILES>
static __device__ __forceinline__ void rescale_sums(const struct query_room &room, struct query_sums &s)
{
    u32 lane = threadIdx.x % 32;

#pragma unroll
    for (u32 i = 0; i < TILES; i++) {
        f32 rescale[2] = { room.rescale[16 * i + lane / 4], room.rescale[16 * i + lane / 4 + 8] };
        if (__all_sync(~0u, rescale[0] == 1 && rescale[1] == 1))
            continue;
#pragma unroll
        for (u32 j = 0; j < 4; j++)
#pragma unroll
            for (u32 c = 0; c < 8; c++)
                s.sums[i][j][c / 4][c % 4] *= rescale[c % 4 / 2];
    }
}

// sums += weights * values, of the warp's 64 dimensions.
template <bool BF16, u32 TILES>
static __device__ __forceinline__ void add_values(const struct query_room &room, const u32 *keys, u32 n_pages,
                                                  struct query_sums &s)
{
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, token = lane % 4 * 2;

#pragma unroll
    for (u32 page = 0; page < TILE_PAGES; page++) {
        if (page >= n_pages)
            break;
        u32 a[TILES][4];
#pragma unroll
        for (u32 i = 0; i < TILES; i++)
            load_matrix(a[i], &room.weights[16 * i + lane % 16][((2 * page + lane / 16) ^ (lane & 7)) * 4]);
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            u32 line = (64 * warp + 16 * j) / 2 + lane / 4;
            const u32 *at = keys + page * PAGE_WORDS;
            uint2 x = *(const uint2 *)(at + word_place(line, token / 4) + token % 4),
                  y = *(const uint2 *)(at + word_place(line, 2 + token / 4) + token % 4);
            u32 even[2] = { __byte_perm(x.x, x.y, 0x5410), __byte_perm(y.x, y.y, 0x5410) },
                odd[2] = { __byte_perm(x.x, x.y, 0x7632), __byte_perm(y.x, y.y, 0x7632) };
#pragma unroll
            for (u32 i = 0; i < TILES; i++) {
                multiply<BF16>(s.sums[i][j][0], a[i], even[0], even[1]);
                multiply<BF16>(s.sums[i][j][1], a[i], odd[0], odd[1]);
            }
        }
    }
}

// The queries' totals, from both halves of the keys; their highest scores are the same in both.
static __device__ __forceinline__ void share_totals(struct query_room &room, struct query_sums &s)
{
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;

    __syncthreads();
#pragma unroll
    for (u32 h = 0; h < 2; h++) {
        u32 query = warp % 4 * 16 + lane / 4 + 8 * h;
        f32 row_sum = s.row_sum[h] + __shfl_xor_sync(~0u, s.row_sum[h], 1);
        row_sum += __shfl_xor_sync(~0u, row_sum, 2);
        if (lane % 4 == 0) {
            room.row_maxes[warp / 4][query] = row_sum;
            room.rescale[query] = s.row_max[h];
        }
    }
    __syncthreads();
}

static __device__ __forceinline__ void store_run(const struct latent_attend_params &p,
                                                 const struct query_room &room, const struct query_run &r,
                                                 const struct query_sums &s)
{
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;

#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        u32 query = 16 * (i / 2) + lane / 4 + i % 2 * 8, row = query_row(p, query);
        if (query < r.first || query >= r.end || row == NOT_SEEN)
            continue;
        u64 place = (u64)row * p.args.n_heads + query_head(p, query);
        f32 row_sum = room.row_maxes[0][query] + room.row_maxes[1][query],
            factor = p.n_splits > 1 ? 1 : 1 / row_sum;
        f32 *to = p.n_splits > 1 ? p.partial + (place * p.n_splits + r.split) * (LATENT_VALUE + 2)
                                 : p.out + place * LATENT_VALUE;
        if (p.n_splits > 1 && warp == 0 && lane % 4 == 0) {
            to[LATENT_VALUE] = room.rescale[query];
            to[LATENT_VALUE + 1] = row_sum;
        }
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            const f32 *even = &s.sums[i / 2][j][0][i % 2 * 2], *odd = &s.sums[i / 2][j][1][i % 2 * 2];
            // partial rows are multiples of 8 bytes
            float2 *at = (float2 *)(to + 64 * warp + 16 * j + lane % 4 * 4);
            at[0] = make_float2(even[0] * factor, odd[0] * factor);
            at[1] = make_float2(even[1] * factor, odd[1] * factor);
        }
    }
}

// TILES: of 16 queries, as many as hold some.
template <u32 FORMAT, u32 TILES>
static __device__ __forceinline__ void attend_keys(const struct latent_attend_params &p,
                                                   struct query_room &room, const struct query_run &r)
{
    constexpr bool bf16 = FORMAT == KV_BF16;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, positions[2];
    struct query_sums s = { .row_max = { -INFINITY_F32, -INFINITY_F32 } };

#pragma unroll
    for (u32 h = 0; h < 2; h++) {
        u32 query = warp % 4 * 16 + lane / 4 + 8 * h;
        bool there = query >= r.first && query < r.end && query_row(p, query) != NOT_SEEN;
        positions[h] = there ? min(step_positions(p.step)[query_row(p, query)], r.to - 1) : NOT_SEEN;
    }
    for (u32 first = r.from, tile = 0; first < r.to; first += LATENT_TILE, tile++) {
        u32 *keys = room.keys[tile % 2], n_valid = min(r.to - first, (u32)LATENT_TILE);
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncthreads();
        if (first + LATENT_TILE < r.to)
            load_keys<FORMAT>(p, pages_at(p, r, first + LATENT_TILE), room.keys[(tile + 1) % 2]);
        else
            clear_keys(keys, n_valid); // as values: behind the next barriers
        score_keys<bf16>(p, room, keys, n_valid, s);
        mask_scores(room, s, positions, first);
        __syncthreads();
        weigh_keys<bf16>(room, s);
        __syncthreads();
        rescale_sums<TILES>(room, s);
        add_values<bf16, TILES>(room, keys, (n_valid + PAGE_TOKENS - 1) / PAGE_TOKENS, s);
    }
    share_totals(room, s);
    store_run(p, room, r, s);
    __syncthreads();
}

// grid: (splits, tiles of heads, tiles of rows)
template <u32 FORMAT, u32 TILES>
static __device__ __forceinline__ void attend_tile(const struct latent_attend_params &p)
{
    extern __shared__ __align__(16) u8 shared[];
    struct query_room &room = *(struct query_room *)shared;

    bool waited = false;

    for (u32 first = 0; first < p.tile_rows * p.tile_heads && query_row(p, first) != NOT_SEEN;) {
        struct query_run r = run_at(p, first);
        struct tile_pages pages = pages_at(p, r, r.from);
        if (!waited)
            wait_for_inputs();
        load_keys<FORMAT>(p, pages, room.keys[0]);
        if (!waited)
            load_queries<FORMAT == KV_BF16>(p, room);
        waited = true;
        if (r.from < r.to)
            attend_keys<FORMAT, TILES>(p, room, r);
        first = r.end;
    }
    if (!waited)
        wait_for_inputs();
}

template <u32 FORMAT> static __device__ __forceinline__ void attend(const struct latent_attend_params &p)
{
    if (n_query_tiles(p) == 1)
        attend_tile<FORMAT, 1>(p);
    else if (n_query_tiles(p) == 2)
        attend_tile<FORMAT, 2>(p);
    else
        attend_tile<FORMAT, 4>(p);
}

#define LATENT_ATTEND(name, F)                                                      \
    extern "C" __global__ void __launch_bounds__(LATENT_ATTEND_THREADS, 1)          \
        latent_attend_##name(const __grid_constant__ struct latent_attend_params p) \
    {                                                                               \
        attend<F>(p);                                                               \
    }
LATENT_ATTEND(bf16, KV_BF16)
LATENT_ATTEND(f16, KV_F16)
LATENT_ATTEND(q8_0, KV_Q8_0)

// A block takes some columns of a head of a row, a thread each: its splits' parts, in their order.
extern "C" __global__ void __launch_bounds__(LATENT_MERGE_THREADS)
    latent_merge(const __grid_constant__ struct latent_attend_params p)
{
    constexpr u32 stride = LATENT_VALUE + 2, n_blocks = LATENT_VALUE / LATENT_MERGE_THREADS;
    __shared__ f32 weights[LATENT_MOST_SPLITS];
    u32 row = blockIdx.y, place = row * p.args.n_heads + blockIdx.x / n_blocks, n = 0,
        column = blockIdx.x % n_blocks * LATENT_MERGE_THREADS + threadIdx.x;
    const f32 *parts = p.partial + (u64)place * p.n_splits * stride;

    if (row < p.step->n_rows) {
        u32 n_keys = step_positions(p.step)[row] + 1, share = split_pages(p, n_keys) * PAGE_TOKENS;
        n = (n_keys + share - 1) / share;
    }
    wait_for_inputs();
    if (threadIdx.x < 32 && n > 0) { // what each part weighs
        f32 row_max[LATENT_MOST_SPLITS / 32], row_sum = 0, most = -INFINITY_F32;
#pragma unroll
        for (u32 k = 0; k < LATENT_MOST_SPLITS / 32; k++) {
            u32 i = threadIdx.x + 32 * k;
            row_max[k] = i < n ? parts[i * stride + LATENT_VALUE] : -INFINITY_F32;
            most = fmaxf(most, row_max[k]);
        }
        most = warp_max(most);
#pragma unroll
        for (u32 k = 0; k < LATENT_MOST_SPLITS / 32; k++) {
            u32 i = threadIdx.x + 32 * k;
            row_max[k] = exp2_of(row_max[k] - most);
            row_sum += i < n ? row_max[k] * parts[i * stride + LATENT_VALUE + 1] : 0;
        }
        row_sum = warp_sum(row_sum);
#pragma unroll
        for (u32 k = 0; k < LATENT_MOST_SPLITS / 32; k++)
            weights[threadIdx.x + 32 * k] = row_max[k] / row_sum;
    }
    __syncthreads();
    f32 sum = 0;
#pragma unroll 8
    for (u32 i = 0; i < n; i++)
        sum += weights[i] * parts[i * stride + column];
    if (n > 0)
        p.out[(u64)place * LATENT_VALUE + column] = sum;
}

// Any size, pages of every format, fp32: a block takes a head of a row, keys in chunks.
extern "C" __global__ void __launch_bounds__(LATENT_MERGE_THREADS)
    latent_attend_plain(const __grid_constant__ struct latent_attend_params p)
{
    // q [head_dim], sums [latent_dims], weights [LATENT_PLAIN_KEYS]
    extern __shared__ __align__(16) f32 plain_shared[];
    __shared__ f32 room[33];
    const struct page_shape &shape = p.args.pages;
    u32 row = blockIdx.y, n_key = shape.head_dim, n_value = p.args.latent_dims, lane = threadIdx.x % 32,
        warp = threadIdx.x / 32;
    struct page_side side = { &shape, (void *)p.pages, false };
    f32 *q = plain_shared, *sums = q + n_key, *weights = sums + n_value, row_max = -INFINITY_F32, row_sum = 0;

    wait_for_inputs();
    if (row >= p.step->n_rows)
        return;
    u32 position = step_positions(p.step)[row];
    u64 place = (u64)row * p.args.n_heads + blockIdx.x;
    const u32 *table = p.table + (u64)step_slots(p.step)[row] * shape.max_pages;
    for (u32 d = threadIdx.x; d < n_key; d += LATENT_MERGE_THREADS)
        q[d] = p.q[place * n_key + d];
    for (u32 d = threadIdx.x; d < n_value; d += LATENT_MERGE_THREADS)
        sums[d] = 0;
    __syncthreads();
    for (u32 first = 0; first <= position; first += LATENT_PLAIN_KEYS) {
        u32 n = min(position + 1 - first, (u32)LATENT_PLAIN_KEYS);
        for (u32 j = warp; j < n; j += LATENT_MERGE_THREADS / 32) {
            u32 page = table[(first + j) / PAGE_TOKENS];
            f32 score = 0;
            for (u32 d = lane; d < n_key; d += 32)
                score += q[d] * page_get(side, page, 0, (first + j) % PAGE_TOKENS, d);
            score = warp_sum(score) * p.args.scale;
            if (lane == 0)
                weights[j] = score;
        }
        __syncthreads();
        f32 mine = threadIdx.x < n ? weights[threadIdx.x] : -INFINITY_F32, new_max = row_max;
        for (u32 j = 0; j < n; j++)
            new_max = fmaxf(new_max, weights[j]);
        f32 rescale = expf(row_max - new_max), weight = threadIdx.x < n ? expf(mine - new_max) : 0;
        row_sum = row_sum * rescale + block_sum(weight, room);
        row_max = new_max;
        if (threadIdx.x < n)
            weights[threadIdx.x] = weight;
        __syncthreads();
        for (u32 d = threadIdx.x; d < n_value; d += LATENT_MERGE_THREADS) {
            f32 sum = sums[d] * rescale;
            for (u32 j = 0; j < n; j++)
                sum += weights[j] *
                       page_get(side, table[(first + j) / PAGE_TOKENS], 0, (first + j) % PAGE_TOKENS, d);
            sums[d] = sum;
        }
        __syncthreads();
    }
    for (u32 d = threadIdx.x; d < n_value; d += LATENT_MERGE_THREADS)
        p.out[place * n_value + d] = sums[d] / row_sum;
}
