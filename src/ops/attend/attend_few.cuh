// attend_few.cuh - the body of attend_few.cu and latent_few.cu: attention of few rows, each over its own
// pages (split-KV, as FlashDecoding; Dao et al., 2023), on tensor cores.
//
// Computes   out = softmax(scale * q . K) V   for a row and a tile of 8 heads that read the same K and V.
// Bound by reading K and V.
//
//              pages of 16 tokens, dealt to the warps in turn
//            +------+------+------+------+--
//   8 heads, | warp | warp | warp | warp | ...     grid: (splits, tiles of heads, rows)
//   a split  |  0   |  1   |  2   |  3   |         long keys: several warps share a page, a part of its
//            +------+------+------+------+--       dims each, and add up their scores in shared memory
//
// Scores of 16 tokens: queries [16, dims] times keys [dims, 8 tokens] twice; of the 16 rows eight are the
// queries as 16-bit numbers, and eight what that rounding lost. Sums: values [16 dims, 16 tokens] times
// weights [16 tokens, 8 heads], as rounded and what that lost. So queries and weights count with 16 bits and
// more. The scales of Q8_0: of K behind the product, of V in the weights.
// Registers: a lane's words of a page (attend_few_page.cuh), scores and weights of tokens 4 t to 4 t + 3,
// sums. Online softmax in powers of two: each warp keeps a maximum and a sum. The warps of a block are
// combined in shared memory. A past that is split leaves parts in memory; when all blocks of a tile have
// come, each adds up some dims of all parts, in their order. How a past is split depends on the row's
// position and the tape alone; with --invariant on the position alone, and one block may take several splits
// in turn. Pipeline: K of the next page is loaded when the scores are there, V when the sums are; pages older
// than the step are read before the block's inputs are there (programmatic dependent launch). Epilogue: fp32
// rows, or rows packed for the next product (epilogue_pack.cuh).
#pragma once
#include "device/cuda/tile.cuh"
#include "ops/attend/attend_few_page.cuh"
#ifndef CUDA_EMULATED // which has no packing
#include "device/cuda/words.cuh"
#include "gemm/cuda/epilogue_pack.cuh"
#endif

enum { PARTS_AT_ONCE = 8 }; // of splits, loads of a thread
#define INFINITY_F32 __int_as_float(0x7f800000)
#define LOG2_E       1.44269504f

template <class S> struct few_room { // shared memory
    uint4 q[S::key / 16][32];
    float4 scores[S::parts > 1 ? 2 : 1][S::parts > 1 ? S::slots : 1][S::parts][32];
    f32 sums[S::slots][ATTEND_FEW_HEADS][S::value];
    f32 row_max[S::slots][ATTEND_FEW_HEADS], row_sum[S::slots][ATTEND_FEW_HEADS];
    f32 weights[S::slots][ATTEND_FEW_HEADS], most[ATTEND_FEW_HEADS], total[ATTEND_FEW_HEADS]; // of the block
    f32 part_weights[S::warps][ATTEND_FEW_SPLITS], part_sums[S::warps][32];
};

template <class S> struct few_state { // of a warp: head g's, but for the sums of heads 2 t and 2 t + 1
    f32 row_max, row_sum;
    f32 sums[S::rows][4];
};

struct seen_range {
    u32 position, first; // positions first..position are seen
    u32 old;             // positions below are older than this step
    const u32 *table;
};

struct few_job { // a block's: heads [head, head + n_heads); splits of `each` pages from page `first` on
    u32 head, n_heads, kv, first, end, each, n_splits, n_blocks;
    u32 tile, block; // of the launch's rows and tiles; of the tile's blocks
};

static __device__ __forceinline__ struct seen_range range_of(const struct attend_params &p, u32 row)
{
    struct seen_range r;
    u32 slot = step_slots(p.step)[row], lane = threadIdx.x & 31;

    r.position = step_positions(p.step)[row];
    r.first = p.args.window && r.position >= p.args.window ? r.position - p.args.window + 1 : 0;
    r.table = p.table + (u64)slot * p.args.pages.max_pages;
    r.old = p.step->n_rows > 32 ? 0 : r.position;
    if (p.step->n_rows > 1 && p.step->n_rows <= 32) {
        if (lane < p.step->n_rows && step_slots(p.step)[lane] == slot)
            r.old = min(r.old, step_positions(p.step)[lane]);
        r.old = __reduce_min_sync(~0u, r.old);
    }
    return r;
}

// Of a row's tile that at most n_blocks blocks share, block number `block`.
static __device__ __forceinline__ struct few_job
job_of(const struct attend_params &p, const struct seen_range &r, u32 tile, u32 block, u32 n_blocks)
{
    constexpr u32 most = ATTEND_FEW_HEADS;
    u32 group = p.args.n_heads / p.args.pages.n_kv_heads, n_tiles = (group + most - 1) / most;
    u32 kv = tile / n_tiles, at = tile % n_tiles * most;
    struct few_job j = { .head = kv * group + at, .n_heads = min(group - at, most), .kv = kv };

    j.tile = blockIdx.z * gridDim.y + tile;
    j.block = block;
    j.first = r.first / PAGE_TOKENS;
    j.end = r.position / PAGE_TOKENS + 1;
    u32 n = j.end - j.first;
    j.each = n <= p.alone_pages ? n : max((n + p.n_splits - 1) / p.n_splits, p.fewest_pages);
    j.n_splits = (n + j.each - 1) / j.each;
    j.n_blocks = min(j.n_splits, n_blocks);
    return j;
}

// ---- a page

// Queries times scale, as fragments. A thread takes four numbers at a time.
template <class S>
static __device__ __forceinline__ void put_queries(const struct attend_params &p, const struct few_job &j,
                                                   struct few_room<S> &room)
{
    constexpr u32 n = S::key / 16 * 32;
    const f32 *q = p.q + ((u64)blockIdx.z * p.args.n_heads + j.head) * S::key;
    f32 scale = p.args.scale * (LOG2_E / S::divide);

#pragma unroll 4
    for (u32 i = threadIdx.x; i < n; i += S::threads) {
        u32 lane = i % 32, s = i / 32, head = lane / 4;
        f32 x[4];
#pragma unroll
        for (u32 c = 0; c < 4; c++)
            x[c] = head < j.n_heads ? q[head * S::key + s * 16 + key_dim<S::format>(lane % 4, c)] * scale : 0;
        uint2 low = two_parts<S::bf16>(x[0], x[1]), high = two_parts<S::bf16>(x[2], x[3]);
        room.q[s][lane] = make_uint4(low.x, low.y, high.x, high.y);
    }
}

// 16 dims of queries times keys, both halves of a page's tokens.
template <class S>
static __device__ __forceinline__ void score_step(const struct few_page<S> &page, u32 s, const uint4 &q,
                                                  f32 (&c)[2][4])
{
    uint2 b[2] = { key_words<S>(page, s, 0), key_words<S>(page, s, 1) };
    const u32 a[4] = { q.x, q.y, q.z, q.w };

    mma_16<S::bf16>(c[0], a, b[0].x, b[0].y);
    mma_16<S::bf16>(c[1], a, b[1].x, b[1].y);
}

// Products become scores, and are zero again: token 4 t + i is column 2 t + i / 2 of product i % 2; rows g +
// 8 are what rounding lost. With scales these are step s's.
template <class S>
static __device__ __forceinline__ void end_scores(const struct few_page<S> &page, u32 s, f32 (&c)[2][4],
                                                  f32 (&scores)[4])
{
    f32 scales[4] = { 1, 1, 1, 1 };

    if (S::format == KV_Q8_0)
        four_scales(page.k_scales[S::format == KV_Q8_0 ? s : 0], scales);
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        f32 &high = c[i % 2][i / 2], &low = c[i % 2][2 + i / 2];
        scores[i] = fmaf(high + low, scales[i], scores[i]);
        high = low = 0;
    }
}

// Scores of tokens 4 t ... of the page, of the warp's dims.
template <class S>
static __device__ __forceinline__ void score_keys(const struct few_room<S> &room,
                                                  const struct few_page<S> &page, f32 (&scores)[4])
{
    u32 lane = threadIdx.x % 32, first = page_part(S::parts) * S::steps;
    f32 c[2][4] = {};

#pragma unroll
    for (u32 i = 0; i < 4; i++)
        scores[i] = 0;
#pragma unroll
    for (u32 s = 0; s < S::steps; s++) {
        score_step<S>(page, s, room.q[first + s][lane], c);
        if (S::format == KV_Q8_0 || s + 1 == S::steps)
            end_scores<S>(page, s, c, scores);
    }
}

// The sum of all parts' scores, the same in every warp of a page. Every thread of the block comes.
template <class S>
static __device__ __forceinline__ void add_scores(struct few_room<S> &room, u32 turn, f32 (&scores)[4])
{
    u32 lane = threadIdx.x % 32, slot = threadIdx.x / 32 / S::parts;

    room.scores[turn][slot][page_part(S::parts)][lane] =
        make_float4(scores[0], scores[1], scores[2], scores[3]);
    __syncthreads();
    float4 sum = room.scores[turn][slot][0][lane];
#pragma unroll
    for (u32 i = 1; i < S::parts; i++) {
        float4 part = room.scores[turn][slot][i][lane];
        sum = make_float4(sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w);
    }
    scores[0] = sum.x;
    scores[1] = sum.y;
    scores[2] = sum.z;
    scores[3] = sum.w;
}

// Scores become weights, and the sums are scaled to them.
template <class S>
static __device__ __forceinline__ void weigh(struct few_state<S> &s, const bool (&seen)[4], f32 (&scores)[4])
{
    u32 t = threadIdx.x % 4;
    f32 most = -INFINITY_F32, total = 0;

#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        scores[i] = seen[i] ? scores[i] * S::divide : -INFINITY_F32;
        most = fmaxf(most, scores[i]);
    }
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
    most = fmaxf(most, s.row_max); // every page has a token that is seen, so this is a number
    f32 rescale = exp2f(s.row_max - most);
    s.row_max = most;
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        scores[i] = exp2f(scores[i] - most);
        total += scores[i];
    }
    s.row_sum = s.row_sum * rescale + total;
    if (__all_sync(~0u, rescale == 1))
        return;
    f32 even = __shfl_sync(~0u, rescale, t * 8), odd = __shfl_sync(~0u, rescale, t * 8 + 4);
#pragma unroll
    for (u32 r = 0; r < S::rows; r++)
#pragma unroll
        for (u32 c = 0; c < 4; c++)
            s.sums[r][c] *= c % 2 ? odd : even;
}

// Sums += values times weights.
template <class S>
static __device__ __forceinline__ void add_values(struct few_state<S> &s, const struct few_page<S> &page,
                                                  const bool (&seen)[4], const f32 (&weights)[4])
{
    u32 masks[2] = { (seen[0] ? 0xffffu : 0) | (seen[1] ? 0xffff0000u : 0),
                     (seen[2] ? 0xffffu : 0) | (seen[3] ? 0xffff0000u : 0) };
    uint2 low, high; // tokens 4 t and 4 t + 1, 4 t + 2 and 4 t + 3

#pragma unroll
    for (u32 r = 0; r < S::rows; r++) {
        if (r == 0 || (S::format == KV_Q8_0 && r % 2 == 0)) {
            f32 scales[4] = { 1, 1, 1, 1 }, x[4];
            if (S::format == KV_Q8_0)
                four_scales(page.v_scales[S::format == KV_Q8_0 ? r / 2 : 0], scales);
#pragma unroll
            for (u32 i = 0; i < 4; i++) // behind the last token lies anything, as a scale too
                x[i] = S::format != KV_Q8_0 ? weights[i] : seen[i] ? weights[i] * scales[i] : 0;
            low = two_parts<S::bf16>(x[0], x[1]);
            high = two_parts<S::bf16>(x[2], x[3]);
        }
        u32 a[4];
        value_words<S>(page, r, masks, a);
        mma_16<S::bf16>(s.sums[r], a, low.x, high.x);
        mma_16<S::bf16>(s.sums[r], a, low.y, high.y);
    }
}

// ---- a split

template <class S>
static __device__ __forceinline__ void put_state(const struct few_state<S> &s, struct few_room<S> &room)
{
    u32 lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, slot = threadIdx.x / 32 / S::parts,
        first = page_part(S::parts) * S::rows * 16;
    f32 total = s.row_sum + __shfl_xor_sync(~0u, s.row_sum, 1);

    total += __shfl_xor_sync(~0u, total, 2);
    if (t == 0 && page_part(S::parts) == 0) {
        room.row_max[slot][g] = s.row_max;
        room.row_sum[slot][g] = total;
    }
#pragma unroll
    for (u32 r = 0; r < S::rows; r++) {
        const f32(&c)[4] = s.sums[r];
        u32 dim = first + value_dim<S>(r, g);
        *(float2 *)&room.sums[slot][2 * t][dim] = make_float2(c[0], c[2]);
        *(float2 *)&room.sums[slot][2 * t + 1][dim] = make_float2(c[1], c[3]);
    }
}

// Pages [first, end), of which the warp's first one may be there already.
template <class S>
static __device__ __forceinline__ void take_pages(const struct attend_params &p, const struct seen_range &r,
                                                  const struct few_job &j, u32 first, u32 end, bool loaded,
                                                  struct few_page<S> &page, struct few_room<S> &room)
{
    u32 slot = threadIdx.x / 32 / S::parts, turn = 0, t = threadIdx.x % 4;
    struct few_state<S> state = {
        .row_max = -INFINITY_F32
    };

    if (first + slot < end && !loaded) {
        u32 number = r.table[first + slot];
        load_keys<S>(p, page, number, j.kv);
        load_values<S>(p, page, number, j.kv);
    }
    // where warps share a page, all go on together
    for (u32 at = first + slot; at < end || (S::parts > 1 && at - slot < end); at += S::slots, turn ^= 1) {
        bool mine = at < end, more = at + S::slots < end;
        u32 number = more ? r.table[at + S::slots] : 0;
        f32 scores[4];
        bool seen[4];
        if (mine)
            score_keys<S>(room, page, scores);
        if (more)
            load_keys<S>(p, page, number, j.kv);
        if (S::parts > 1)
            add_scores<S>(room, turn, scores);
        if (!mine)
            continue;
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 token = at * PAGE_TOKENS + 4 * t + i;
            seen[i] = token >= r.first && token <= r.position;
        }
        weigh<S>(state, seen, scores);
        add_values<S>(state, page, seen, scores);
        if (more)
            load_values<S>(p, page, number, j.kv);
    }
    if (first + slot < end)
        put_state<S>(state, room);
}

// ---- results

#ifndef CUDA_EMULATED
// Not inline: code that is run once comes from memory, instruction by instruction.
static __device__ __noinline__ void put_packed(const struct packed_out next, u32 row, u32 column, f32 v)
{
    pack_put_warp(next, row, column, v);
}
#endif

// Number `at` of a row's result. A warp brings 32 side by side.
template <class S>
static __device__ __forceinline__ void put_result(const struct attend_params &p, u32 at, f32 v)
{
#ifndef CUDA_EMULATED
    if constexpr (S::hands_on) { // to other blocks, as words
        f32 next = __shfl_down_sync(~0u, v, 1);
        if (at % 2 == 0)
            publish_pair((u32 *)p.out + at / 2, v, next);
        return;
    }
#endif
    p.out[(u64)blockIdx.z * p.args.n_heads * S::value + at] = v;
#ifndef CUDA_EMULATED
    if (p.packed_out.at)
        put_packed(p.packed_out, blockIdx.z, at / 32 * 32, v);
#endif
}

// The sum of exp2(score - most) of a head's scores, its sink among them.
template <bool SINKS>
static __device__ __forceinline__ f32 with_sink(const struct attend_params &p, u32 head, f32 most, f32 total)
{
    return SINKS ? total + exp2f(p.sinks[head] * LOG2_E - most) : total;
}

// Where a split's part of a head lies: sums, their maximum, their total.
template <class S>
static __device__ __forceinline__ f32 *part_at(const struct attend_params &p, u32 head, u32 split)
{
    u64 place = (u64)blockIdx.z * p.args.n_heads + head;
    return p.partial + (place * p.n_splits + split) * (S::value + 2);
}

// What each warp's sums weigh in the block's: divided by the total already, where they are the result.
template <class S, bool SINKS>
static __device__ __forceinline__ void weigh_warps(const struct attend_params &p, const struct few_job &j,
                                                   u32 n, struct few_room<S> &room)
{
    u32 h = threadIdx.x;
    f32 tops[S::slots], totals[S::slots], most = -INFINITY_F32, total = 0;

    if (h >= j.n_heads)
        return;
#pragma unroll
    for (u32 k = 0; k < S::slots; k++) {
        tops[k] = k < n ? room.row_max[k][h] : -INFINITY_F32;
        totals[k] = k < n ? room.row_sum[k][h] : 0;
        most = fmaxf(most, tops[k]);
    }
#pragma unroll
    for (u32 k = 0; k < S::slots; k++) {
        tops[k] = exp2f(tops[k] - most);
        total += totals[k] * tops[k];
    }
    f32 factor = j.n_splits > 1 ? 1 : 1 / with_sink<SINKS>(p, j.head + h, most, total);
#pragma unroll
    for (u32 k = 0; k < S::slots; k++)
        room.weights[k][h] = tops[k] * factor;
    room.most[h] = most;
    room.total[h] = total;
}

// Number `dim` of head h of the tile, of n pages' warps.
template <class S>
static __device__ __forceinline__ f32 sum_of_warps(const struct few_room<S> &room, u32 n, u32 h, u32 dim)
{
    f32 sum = 0;

#pragma unroll
    for (u32 k = 0; k < S::slots; k++)
        if (k < n)
            sum = fmaf(room.sums[k][h][dim], room.weights[k][h], sum);
    return sum;
}

// The warps' sums become the result, or a split's part of it.
template <class S, bool SINKS>
static __device__ __forceinline__ void combine_warps(const struct attend_params &p, const struct few_job &j,
                                                     u32 n_pages, u32 split, struct few_room<S> &room)
{
    u32 n = min(n_pages, S::slots);

    weigh_warps<S, SINKS>(p, j, n, room);
    __syncthreads();
#pragma unroll 2
    for (u32 i = threadIdx.x; i < j.n_heads * S::value; i += S::threads) {
        u32 h = i / S::value, dim = i % S::value;
        f32 sum = sum_of_warps<S>(room, n, h, dim);
        if (j.n_splits == 1)
            put_result<S>(p, j.head * S::value + i, sum);
        else
            part_at<S>(p, j.head + h, split)[dim] = sum;
    }
    if (j.n_splits > 1 && threadIdx.x < j.n_heads) {
        f32 *part = part_at<S>(p, j.head + threadIdx.x, split) + S::value;
        part[0] = room.most[threadIdx.x];
        part[1] = room.total[threadIdx.x];
    }
}

// Some parts of a number, those from `from` on, every `step`th.
struct some_parts {
    f32 v[PARTS_AT_ONCE];

    // at: in part `from`; part `from + step` lies pitch numbers further
    __device__ __forceinline__ void load(const f32 *at, u64 pitch, u32 from, u32 step, u32 n)
    {
#pragma unroll
        for (u32 i = 0; i < PARTS_AT_ONCE; i++, at += pitch)
            v[i] = from + i * step < n ? __ldcg(at) : 0;
    }
};

// The calling warp's share of number `at` of the tile: of the parts those from `from` on, every `step`th,
// divided by the head's total. All that it needs first is asked for at once.
template <class S, bool SINKS>
static __device__ __forceinline__ f32 add_parts(const struct attend_params &p, const struct few_job &j,
                                                u32 at, u32 from, u32 step, f32 *weights)
{
    constexpr u32 stride = S::value + 2, n_each = ATTEND_FEW_SPLITS / 32;
    u32 lane = threadIdx.x % 32, head = j.head + at / S::value, n = j.n_splits;
    const f32 *parts = part_at<S>(p, head, 0);
    f32 tops[n_each], totals[n_each], most = -INFINITY_F32, total = 0, sum = 0;
    struct some_parts some;

#pragma unroll
    for (u32 i = 0; i < n_each; i++) {
        const f32 *mine = parts + (lane + 32 * i) * stride + S::value;
        tops[i] = lane + 32 * i < n ? __ldcg(mine) : -INFINITY_F32;
        totals[i] = lane + 32 * i < n ? __ldcg(mine + 1) : 0;
    }
    parts += from * stride + at % S::value;
    some.load(parts, step * stride, from, step, n);
#pragma unroll
    for (u32 i = 0; i < n_each; i++)
        most = fmaxf(most, tops[i]);
    most = warp_max(most);
#pragma unroll
    for (u32 i = 0; i < n_each; i++) {
        f32 weight = exp2f(tops[i] - most);
        total += weight * totals[i];
        weights[lane + 32 * i] = weight;
    }
    __syncwarp();
    for (;;) {
#pragma unroll
        for (u32 i = 0; i < PARTS_AT_ONCE; i++)
            if (from + i * step < n)
                sum = fmaf(weights[from + i * step], some.v[i], sum);
        from += PARTS_AT_ONCE * step;
        if (from >= n)
            break;
        parts += PARTS_AT_ONCE * step * stride;
        some.load(parts, step * stride, from, step, n);
    }
    __syncwarp();
    return sum / with_sink<SINKS>(p, head, most, warp_sum(total));
}

// Block number `block` of the tile's adds up its units of 32 numbers. Few units and many parts: several warps
// take a unit.
template <class S, bool SINKS>
static __device__ __forceinline__ void combine_units(const struct attend_params &p, const struct few_job &j,
                                                     u32 block, struct few_room<S> &room)
{
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, n = j.n_heads * (S::value / 32),
        each = (n + j.n_blocks - 1) / j.n_blocks, begin = block * each, end = min(begin + each, n), share = 1;

    while (share * PARTS_AT_ONCE < j.n_splits && 2 * share * each <= S::warps)
        share *= 2;
    for (u32 first = begin; first < end; first += S::warps / share) {
        u32 unit = first + warp / share, at = unit * 32 + lane;
        f32 sum = 0;
        if (unit < end)
            sum = add_parts<S, SINKS>(p, j, at, warp % share, share, room.part_weights[warp]);
        if (share > 1) {
            room.part_sums[warp][lane] = sum;
            __syncthreads();
            for (u32 k = 1; k < share && warp % share == 0; k++)
                sum += room.part_sums[warp + k][lane];
            __syncthreads();
        }
        if (unit < end && warp % share == 0)
            put_result<S>(p, j.head * S::value + at, sum);
    }
}

// Waits for all blocks of the tile, which come in the order of their numbers and wait for nothing else; then
// each adds up its units of all parts. The last to leave clears the counters.
template <class S, bool SINKS>
static __device__ __forceinline__ void combine_splits(const struct attend_params &p, const struct few_job &j,
                                                      struct few_room<S> &room)
{
    u32 *counters = p.arrived + (u64)j.tile * 2, first = j.block, end = first + 1;

    __syncthreads();
#ifdef CUDA_EMULATED // blocks run one after another there: the last one does it for all
    bool last = threadIdx.x == 0 && atomicAdd(&counters[0], 1) == j.n_blocks - 1;
    end = __syncthreads_or(last) ? j.n_blocks : 0;
    first = 0;
#else
    if (threadIdx.x == 0) { // for what all threads of the block have written
        __threadfence();
        atomicAdd(&counters[0], 1);
        while (*(volatile u32 *)&counters[0] < j.n_blocks)
            ;
        __threadfence();
    }
    __syncthreads();
#endif
    for (; first < end; first++)
        combine_units<S, SINKS>(p, j, first, room);
    if (threadIdx.x == 0 && atomicAdd(&counters[1], 1) == j.n_blocks - 1) {
        counters[0] = 0;
        counters[1] = 0;
    }
}

template <class S, bool SINKS>
static __device__ __forceinline__ void attend_few(const struct attend_params &p)
{
    extern __shared__ __align__(16) u8 few_shared[];
    struct few_room<S> &room = *(struct few_room<S> *)few_shared;
    u32 row = blockIdx.z, slot = threadIdx.x / 32 / S::parts;
    struct few_page<S> page;

    STATIC_ASSERT(sizeof room == ATTEND_FEW_SHARED(S::key, S::value, S::parts, S::threads));
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
    if (row >= p.step->n_rows) // the step and the table are older than any launch
        return;
    if (p.n_decode && !attend_is_decode(p, row)) {
        wait_for_inputs(); // no other block may wait: this launch must not end before the ones it depends on
        return;
    }
    struct seen_range r = range_of(p, row);
    struct few_job j = job_of(p, r, blockIdx.y, blockIdx.x, gridDim.x);
    if (blockIdx.x >= j.n_blocks) // need not wait: row 0's first block does, so this launch ends after the
                                  // ones it depends on
        return;
    u32 at = j.first + blockIdx.x * j.each + slot;
    bool has_page = at < min(j.first + (blockIdx.x + 1) * j.each, j.end),
         early = has_page && (at + 1) * PAGE_TOKENS <= r.old;
    u32 number = has_page ? r.table[at] : 0;
    if (!early)
        wait_for_inputs();
    if (has_page) { // beside the queries, where a page is of this step
        load_keys<S>(p, page, number, j.kv);
        load_values<S>(p, page, number, j.kv);
    }
    if (early)
        wait_for_inputs();
    put_queries<S>(p, j, room);
    __syncthreads();
    for (u32 split = blockIdx.x; split < j.n_splits; split += gridDim.x) {
        u32 first = j.first + split * j.each, end = min(first + j.each, j.end);
        take_pages<S>(p, r, j, first, end, has_page && split == blockIdx.x, page, room);
        __syncthreads();
        combine_warps<S, SINKS>(p, j, end - first, split, room);
        __syncthreads();
    }
    if (j.n_splits > 1)
        combine_splits<S, SINKS>(p, j, room);
}
