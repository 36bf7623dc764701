// attend.cu - attend.h for a few rows: positions are split over blocks, the heads of a group share every read of K and V.
//
// K pages hold [dim][16 tokens], V pages [token][dim]. A warp takes whole pages. For scores a lane reads eight tokens of one dimension at
// a time and keeps eight sums a head, which then meet over the lanes. The last block of a (row, KV head) to finish adds up the splits, in
// their order. How positions are split depends on the row's position and the tape alone.
// attend_plain is the definition, with online softmax: any head size, fp32 pages too.
#include "device/cuda/kernel.cuh"
#include "ops/attend/attend_cuda.h"

enum { FEW_THREADS = 512, FEW_WARPS = 16, HEADS_AT_ONCE = 4, LEAST_PAGES = 16 };

struct range { // of one row
    u32 position, first, first_page, n_pages;
    const u32 *table;
};

static __device__ __forceinline__ struct range range_of(const struct attend_params &p, u32 row)
{
    struct range r;
    r.position = step_positions(p.step)[row];
    r.first = p.args.window && r.position >= p.args.window ? r.position - p.args.window + 1 : 0;
    r.first_page = r.first / PAGE_TOKENS;
    r.n_pages = r.position / PAGE_TOKENS + 1 - r.first_page;
    r.table = p.table + (u64)step_slots(p.step)[row] * p.args.pages.max_pages;
    return r;
}

// Eight sums over the lanes of equal parity; afterwards the lane holds the sum of token `kept`.
static __device__ __forceinline__ f32 spread_sum(f32 (&v)[8], u32 lane, u32 *kept)
{
    u32 at = 0;
#pragma unroll
    for (u32 bit = 16, n = 4; bit >= 4; bit /= 2, n /= 2) {
        bool upper = lane & bit;
#pragma unroll
        for (u32 i = 0; i < n; i++) {
            f32 mine = upper ? v[i + n] : v[i], other = upper ? v[i] : v[i + n];
            v[i] = mine + __shfl_xor_sync(~0u, other, bit);
        }
        at += upper ? n : 0;
    }
    *kept = at;
    return v[0] + __shfl_xor_sync(~0u, v[0], 2);
}

struct few_room {
    f32 *q, *scores, *sums, *top, *total; // [group][head_dim], [group][tokens], [warps][group][head_dim], [group] twice
};

// Scores of one page for the heads [h, h + HEADS_AT_ONCE).
static __device__ __forceinline__ void page_scores(const struct attend_params &p, const struct few_room &room, const __half *k, u32 h,
                                                   f32 (&sums)[HEADS_AT_ONCE][8])
{
    u32 lane = threadIdx.x & 31, group = p.args.n_heads / p.args.pages.n_kv_heads, head_dim = p.args.pages.head_dim;

#pragma unroll 8
    for (u32 d = lane / 2; d < head_dim; d += 16) {
        uint4 v = *(const uint4 *)(k + d * PAGE_TOKENS + lane % 2 * 8);
        const u32 words[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
        for (u32 i = 0; i < HEADS_AT_ONCE; i++) {
            f32 q = h + i < group ? room.q[(h + i) * head_dim + d] : 0;
#pragma unroll
            for (u32 w = 0; w < 4; w++) {
                float2 f = __half22float2(*(const __half2 *)&words[w]);
                sums[i][2 * w] = fmaf(q, f.x, sums[i][2 * w]);
                sums[i][2 * w + 1] = fmaf(q, f.y, sums[i][2 * w + 1]);
            }
        }
    }
}

struct share { // this block's pages, counted from the range's first
    u32 first, end, tokens;
};

static __device__ void all_scores(const struct attend_params &p, const struct few_room &room, const struct range &r, const struct share &s)
{
    const struct page_shape &shape = p.args.pages;
    u32 lane = threadIdx.x & 31, group = p.args.n_heads / shape.n_kv_heads;

    for (u32 at = s.first + threadIdx.x / 32; at < s.end; at += FEW_WARPS) {
        const __half *k = (const __half *)p.k_pages + page_at(&shape, r.table[r.first_page + at], blockIdx.y);
        for (u32 h = 0; h < group; h += HEADS_AT_ONCE) {
            f32 sums[HEADS_AT_ONCE][8] = {};
            page_scores(p, room, k, h, sums);
#pragma unroll
            for (u32 i = 0; i < HEADS_AT_ONCE; i++) {
                u32 kept;
                f32 score = spread_sum(sums[i], lane, &kept);
                u32 token = lane % 2 * 8 + kept, position = (r.first_page + at) * PAGE_TOKENS + token;
                bool seen = position >= r.first && position <= r.position;
                if ((lane & 2) == 0 && h + i < group)
                    room.scores[(h + i) * s.tokens + (at - s.first) * PAGE_TOKENS + token] = seen ? score : -__int_as_float(0x7f800000);
            }
        }
    }
}

// A warp a head: scores become exp(score - top).
static __device__ void softmax(const struct few_room &room, const struct share &s, u32 group)
{
    u32 lane = threadIdx.x & 31, n = (s.end - s.first) * PAGE_TOKENS;

    for (u32 h = threadIdx.x / 32; h < group; h += FEW_WARPS) {
        f32 *scores = room.scores + h * s.tokens, top = -__int_as_float(0x7f800000), total = 0;
        for (u32 i = lane; i < n; i += 32)
            top = fmaxf(top, scores[i]);
        top = warp_max(top);
        for (u32 i = lane; i < n; i += 32) {
            f32 e = scores[i] == -__int_as_float(0x7f800000) ? 0 : expf(scores[i] - top);
            scores[i] = e;
            total += e;
        }
        total = warp_sum(total);
        if (lane == 0) {
            room.top[h] = top;
            room.total[h] = total;
        }
    }
}

// Four dimensions of a page's values. Tokens after `last` were not written and may hold anything: they are not read.
static __device__ __forceinline__ void page_values(const struct attend_params &p, const __half *v, const f32 *weights, u32 apart, u32 last,
                                                   u32 n_heads, f32 (&sums)[HEADS_AT_ONCE][4])
{
    uint2 words[PAGE_TOKENS];

#pragma unroll
    for (u32 t = 0; t < PAGE_TOKENS; t++)
        words[t] = t <= last ? *(const uint2 *)(v + t * p.args.pages.head_dim) : make_uint2(0, 0);
#pragma unroll
    for (u32 t = 0; t < PAGE_TOKENS; t++) {
        float2 a = __half22float2(*(const __half2 *)&words[t].x), b = __half22float2(*(const __half2 *)&words[t].y);
#pragma unroll
        for (u32 i = 0; i < HEADS_AT_ONCE; i++) {
            f32 w = i < n_heads ? weights[i * apart + t] : 0;
            sums[i][0] = fmaf(w, a.x, sums[i][0]);
            sums[i][1] = fmaf(w, a.y, sums[i][1]);
            sums[i][2] = fmaf(w, b.x, sums[i][2]);
            sums[i][3] = fmaf(w, b.y, sums[i][3]);
        }
    }
}

// Each warp sums its pages' values; four dimensions a lane.
static __device__ void all_values(const struct attend_params &p, const struct few_room &room, const struct range &r, const struct share &s)
{
    const struct page_shape &shape = p.args.pages;
    u32 lane = threadIdx.x & 31, warp = threadIdx.x / 32, group = p.args.n_heads / shape.n_kv_heads;

    for (u32 h = 0; h < group; h += HEADS_AT_ONCE)
        for (u32 d = lane * 4; d < shape.head_dim; d += 128) {
            f32 sums[HEADS_AT_ONCE][4] = {};
            for (u32 at = s.first + warp; at < s.end; at += FEW_WARPS) {
                const __half *v = (const __half *)p.v_pages + page_at(&shape, r.table[r.first_page + at], blockIdx.y) + d;
                const f32 *weights = room.scores + h * s.tokens + (at - s.first) * PAGE_TOKENS;
                page_values(p, v, weights, s.tokens, r.position - (r.first_page + at) * PAGE_TOKENS, min(group - h, HEADS_AT_ONCE), sums);
            }
#pragma unroll
            for (u32 i = 0; i < HEADS_AT_ONCE; i++)
                if (h + i < group)
                    *(float4 *)(room.sums + ((u64)warp * group + h + i) * shape.head_dim + d) =
                        make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
        }
}

static __device__ __forceinline__ f32 value_of(const struct few_room &room, u32 i, u32 n)
{
    f32 sum = 0;
    for (u32 w = 0; w < FEW_WARPS; w++)
        sum += room.sums[w * n + i];
    return sum;
}

// One split: the result. More: this block's part goes out, and the last block to arrive adds them.
static __device__ void combine(const struct attend_params &p, const struct few_room &room, u32 row, u32 active)
{
    __shared__ u32 last;
    const struct page_shape &shape = p.args.pages;
    u32 group = p.args.n_heads / shape.n_kv_heads, n = group * shape.head_dim, stride = shape.head_dim + 2;
    f32 *out = p.out + ((u64)row * p.args.n_heads + blockIdx.y * group) * shape.head_dim;
    u64 place = (u64)row * shape.n_kv_heads + blockIdx.y;
    f32 *parts = p.partial + place * p.n_splits * group * stride;

    for (u32 i = threadIdx.x; i < n; i += FEW_THREADS) {
        u32 h = i / shape.head_dim, d = i % shape.head_dim;
        f32 v = value_of(room, i, n);
        if (active == 1) {
            out[i] = v / room.total[h];
            continue;
        }
        f32 *part = parts + ((u64)blockIdx.x * group + h) * stride;
        part[d] = v;
        if (d == 0) {
            part[shape.head_dim] = room.top[h];
            part[shape.head_dim + 1] = room.total[h];
        }
    }
    if (active == 1)
        return;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        last = atomicAdd(&p.arrived[place], 1) == active - 1;
    __syncthreads();
    if (!last)
        return;
    __threadfence();
    for (u32 i = threadIdx.x; i < n; i += FEW_THREADS) {
        u32 h = i / shape.head_dim, d = i % shape.head_dim;
        f32 top = -__int_as_float(0x7f800000), total = 0, sum = 0;
        for (u32 s = 0; s < active; s++)
            top = fmaxf(top, __ldcg(parts + ((u64)s * group + h) * stride + shape.head_dim));
        for (u32 s = 0; s < active; s++) {
            const f32 *part = parts + ((u64)s * group + h) * stride;
            f32 scale = expf(__ldcg(part + shape.head_dim) - top);
            total += scale * __ldcg(part + shape.head_dim + 1);
            sum += scale * __ldcg(part + d);
        }
        out[i] = sum / total;
    }
    if (threadIdx.x == 0)
        p.arrived[place] = 0;
}

// Pages come into the L2 cache before the inputs are there.
static __device__ void ask_for_pages(const struct attend_params &p, const struct range &r, const struct share &s)
{
    u32 bytes = PAGE_TOKENS * p.args.pages.head_dim * 2;

    for (u32 at = s.first + threadIdx.x / 32; at < s.end; at += FEW_WARPS) {
        u64 page = page_at(&p.args.pages, r.table[r.first_page + at], blockIdx.y) * 2;
        for (u32 i = (threadIdx.x & 31) * 128; i < bytes; i += 32 * 128) {
            asm volatile("prefetch.global.L2 [%0];" ::"l"((const u8 *)p.k_pages + page + i));
            asm volatile("prefetch.global.L2 [%0];" ::"l"((const u8 *)p.v_pages + page + i));
        }
    }
}

extern "C" __global__ void __launch_bounds__(FEW_THREADS) attend_few(const __grid_constant__ struct attend_params p)
{
    extern __shared__ __align__(16) f32 few_shared[];
    const struct page_shape &shape = p.args.pages;
    u32 row = blockIdx.z, group = p.args.n_heads / shape.n_kv_heads, n = group * shape.head_dim;

    struct range r = range_of(p, min(row, p.step->n_rows - 1)); // the step and the table are older than any launch
    u32 each = max((r.n_pages + p.n_splits - 1) / p.n_splits, (u32)LEAST_PAGES), active = (r.n_pages + each - 1) / each;
    struct share s = { blockIdx.x * each, min((blockIdx.x + 1) * each, r.n_pages), p.most_pages * PAGE_TOKENS };
    if (row < p.step->n_rows)
        ask_for_pages(p, r, s);
    wait_for_inputs();
    if (row >= p.step->n_rows || blockIdx.x >= active)
        return;
    struct few_room room;
    room.q = few_shared;
    room.sums = room.q + n;
    room.scores = room.sums + FEW_WARPS * n;
    room.top = room.scores + group * s.tokens;
    room.total = room.top + group;
    for (u32 i = threadIdx.x; i < n; i += FEW_THREADS)
        room.q[i] = p.q[((u64)row * p.args.n_heads + blockIdx.y * group) * shape.head_dim + i] * p.args.scale;
    __syncthreads();
    all_scores(p, room, r, s);
    __syncthreads();
    softmax(room, s, group);
    __syncthreads();
    all_values(p, room, r, s);
    __syncthreads();
    combine(p, room, row, active);
}

// A block a head and row: the four warps take positions in turn, each with a softmax of its own, and meet at the end.
extern "C" __global__ void __launch_bounds__(128) attend_plain(const __grid_constant__ struct attend_params p)
{
    extern __shared__ __align__(16) f32 plain_shared[]; // q, then the sum [head_dim]
    __shared__ f32 tops[4], totals[4];
    const struct page_shape &shape = p.args.pages;
    u32 row = blockIdx.y, h = blockIdx.x, kv = h / (p.args.n_heads / shape.n_kv_heads), lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    bool f16 = shape.k_format == KV_F16;
    f32 *q = plain_shared, *out = q + shape.head_dim, top = -__int_as_float(0x7f800000), total = 0;
    f32 sums[16]; // lane's dimensions: lane, lane + 32, ...; up to 512

    wait_for_inputs();
    if (row >= p.step->n_rows)
        return;
    struct range r = range_of(p, row);
    u32 n_sums = (shape.head_dim + 31) / 32;
    for (u32 d = threadIdx.x; d < shape.head_dim; d += 128) {
        q[d] = p.q[((u64)row * p.args.n_heads + h) * shape.head_dim + d];
        out[d] = 0;
    }
#pragma unroll
    for (u32 i = 0; i < 16; i++)
        sums[i] = 0;
    __syncthreads();
    for (u32 j = r.first + warp; j <= r.position; j += 4) {
        u64 base = page_at(&shape, r.table[j / PAGE_TOKENS], kv);
        f32 score = 0;
        for (u32 d = lane; d < shape.head_dim; d += 32)
            score += q[d] * page_number(p.k_pages, f16, base + page_k_element(&shape, j % PAGE_TOKENS, d));
        score = warp_sum(score) * p.args.scale;
        f32 higher = fmaxf(top, score), keep = expf(top - higher), weight = expf(score - higher);
        top = higher;
        total = total * keep + weight;
#pragma unroll
        for (u32 i = 0; i < 16; i++)
            if (i < n_sums && lane + 32 * i < shape.head_dim)
                sums[i] = sums[i] * keep + weight * page_number(p.v_pages, f16, base + page_v_element(&shape, j % PAGE_TOKENS, lane + 32 * i));
    }
    if (lane == 0) {
        tops[warp] = top;
        totals[warp] = total;
    }
    __syncthreads();
    f32 all = fmaxf(fmaxf(tops[0], tops[1]), fmaxf(tops[2], tops[3])), sum = 0;
    for (u32 w = 0; w < 4; w++)
        sum += totals[w] * expf(tops[w] - all);
    for (u32 w = 0; w < 4; w++) {
        if (warp == w)
#pragma unroll
            for (u32 i = 0; i < 16; i++)
                if (i < n_sums && lane + 32 * i < shape.head_dim)
                    out[lane + 32 * i] += sums[i] * expf(top - all);
        __syncthreads();
    }
    for (u32 d = threadIdx.x; d < shape.head_dim; d += 128)
        p.out[((u64)row * p.args.n_heads + h) * shape.head_dim + d] = out[d] / sum;
}
