// attend_few.cu - decode attention: few rows, each over its own pages (split-KV, as FlashDecoding; Dao et
// al., 2023). Pages of F16, BF16 and Q8_0, heads of 64, 128 or 256.
//
// Computes   out = softmax(scale * q . K) V   over the row's positions. Bound by reading K and V.
//
//              pages of 16 tokens, dealt to the warps in turn
//            +------+------+------+------+--
//   a head,  | warp | warp | warp | warp | ...     grid: (splits, heads, rows)
//   a split  |  0   |  1   |  2   |  3   |         split rows: 4 heads of a GQA group share a read
//            +------+------+------+------+--
//
// Online softmax: each warp keeps a running max and a running sum; the warps of a block are combined in
// shared memory, and the last block of several to arrive adds the splits' parts in their order. The number of
// splits depends on the row's position and the tape alone. Registers: a lane holds eight tokens of one
// dimension of K and eight dimensions of one token of V, 16 bytes of F16. BF16 and Q8_0 are stored in groups
// of two and four numbers, so it reads the 32 bytes that it shares with its neighbours and keeps its own.
// Pipeline: the next page is loaded while this one is used; pages older than the step are read before the
// block's inputs are there (programmatic dependent launch).
// Epilogue: fp32 rows, or rows packed for the next product (epilogue_pack.cuh).
#include "device/cuda/kernel.cuh"
#include "ops/attend/attend_cuda.h"
#include "gemm/cuda/epilogue_pack.cuh"

enum { WARPS = ATTEND_FEW_THREADS / 32 };
#define INFINITY_F32 __int_as_float(0x7f800000)

struct kv_split { // of a block: heads [head, head + n_heads) over pages [first, end) of the table, one of
                  // n_splits shares
    u32 head, n_heads, kv, first, end, split, n_splits;
};

struct seen_range {
    u32 position, first; // positions first..position are seen
    u32 old;             // positions below are older than this step
    const u32 *table;
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

static __device__ __forceinline__ struct kv_split split_of(const struct attend_params &p,
                                                           const struct seen_range &r)
{
    u32 group = p.args.n_heads / p.args.pages.n_kv_heads, h = blockIdx.y % group;
    u32 first = r.first / PAGE_TOKENS, end = r.position / PAGE_TOKENS + 1, n = end - first;
    struct kv_split s = { blockIdx.y, 1, blockIdx.y / group, first, end, 0, 1 };

    if (n <= p.alone_pages) {
        s.split = blockIdx.x; // 0 works, the others have nothing to do
        return s;
    }
    s.n_heads = min(group - h / 4 * 4, 4u);
    s.head = blockIdx.y - h % 4;
    s.split = blockIdx.x * s.n_heads + h % 4;
    u32 each = max((n + p.n_splits * s.n_heads - 1) / (p.n_splits * s.n_heads), (u32)WARPS);
    s.n_splits = (n + each - 1) / each;
    s.first = first + s.split * each;
    s.end = min(s.first + each, end);
    return s;
}

struct kv_eight { // numbers of K or V as they lie in the page: 16 bits each, or 8
    u32 words[4];
};

// Eight numbers at `at`, each the `which`-th of its group.
template <u32 FORMAT> static __device__ __forceinline__ struct kv_eight load_eight(const u8 *at, u32 which)
{
    uint4 a = *(const uint4 *)at, b = FORMAT == KV_F16 ? a : *(const uint4 *)(at + 16);

    if (FORMAT == KV_F16)
        return { { a.x, a.y, a.z, a.w } };
    if (FORMAT == KV_BF16) {
        u32 pick = which ? 0x7632 : 0x5410;
        return { { __byte_perm(a.x, a.y, pick), __byte_perm(a.z, a.w, pick), __byte_perm(b.x, b.y, pick),
                   __byte_perm(b.z, b.w, pick) } };
    }
    u32 pick = which | (4 + which) << 4;
    return { { __byte_perm(__byte_perm(a.x, a.y, pick), __byte_perm(a.z, a.w, pick), 0x5410),
               __byte_perm(__byte_perm(b.x, b.y, pick), __byte_perm(b.z, b.w, pick), 0x5410), 0, 0 } };
}

// Q8_0 without its scales.
template <u32 FORMAT> static __device__ __forceinline__ void widen(const struct kv_eight &v, f32 (&out)[8])
{
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        float2 f;
        if (FORMAT == KV_F16) {
            f = __half22float2(*(const __half2 *)&v.words[i]);
        } else if (FORMAT == KV_BF16) {
            f = make_float2(__uint_as_float(v.words[i] << 16), __uint_as_float(v.words[i] & 0xffff0000));
        } else { // b + 128 in the low bits of 2^23
            u32 word = v.words[i / 2] ^ 0x80808080, byte = i % 2 * 2;
            f = make_float2(__uint_as_float(__byte_perm(word, 0x4b000000, 0x7650 + byte)) - 8388736.0f,
                            __uint_as_float(__byte_perm(word, 0x4b000000, 0x7651 + byte)) - 8388736.0f);
        }
        out[2 * i] = f.x;
        out[2 * i + 1] = f.y;
    }
}

template <u32 DIM, u32 K, u32 V> struct page {          // a lane's part of K and V, in these formats
    static constexpr u32 n = DIM / 16, lanes = DIM / 8; // lanes: that share a token of V
    struct kv_eight k[n], v[n];
    struct kv_eight k_scales[K == KV_Q8_0 ? n / 2 : 1]; // of eight tokens, 32 dims
    __half v_scales[V == KV_Q8_0 ? n : 1];
};

template <u32 DIM, u32 K, u32 V>
static __device__ __forceinline__ void load_page(const struct attend_params &p, struct page<DIM, K, V> &page,
                                                 u32 number, u32 kv)
{
    u64 place = page_place(&p.args.pages, number, kv);
    const u8 *k = (const u8 *)p.k_pages + place * page_head_bytes(K, DIM),
             *v = (const u8 *)p.v_pages + place * page_head_bytes(V, DIM);
    u32 lane = threadIdx.x & 31, k_group = page_group(K), v_group = page_group(V), first = (lane & 1) * 8;

#pragma unroll
    for (u32 i = 0; i < page.n; i++) {
        u32 dim = i * 16 + lane / 2;
        page.k[i] = load_eight<K>(k + (dim / k_group * PAGE_TOKENS + first) * k_group * page_number_bytes(K),
                                  dim % k_group);
        if (K == KV_Q8_0 && i % 2 == 0)
            page.k_scales[i / 2] = load_eight<KV_F16>(k + page_scale_at(&p.args.pages, first, dim), 0);
    }
#pragma unroll
    for (u32 i = 0; i < page.n; i++) {
        u32 token = i * (32 / page.lanes) + lane / page.lanes, dim = lane % page.lanes * 8;
        page.v[i] = load_eight<V>(v + (token / v_group * DIM + dim) * v_group * page_number_bytes(V),
                                  token % v_group);
        if (V == KV_Q8_0)
            page.v_scales[i] = *(const __half *)(v + page_scale_at(&p.args.pages, token, dim));
    }
}

// Eight sums over the lanes of equal parity; afterwards the lane holds the sum of token kept_token().
static __device__ __forceinline__ f32 spread_sum(f32 (&v)[8])
{
    u32 lane = threadIdx.x & 31;
#pragma unroll
    for (u32 bit = 16, n = 4; bit >= 4; bit /= 2, n /= 2) {
        bool upper = lane & bit;
#pragma unroll
        for (u32 i = 0; i < n; i++) {
            f32 mine = upper ? v[i + n] : v[i], other = upper ? v[i] : v[i + n];
            v[i] = mine + __shfl_xor_sync(~0u, other, bit);
        }
    }
    return v[0] + __shfl_xor_sync(~0u, v[0], 2);
}
static __device__ __forceinline__ u32 kept_token(u32 lane)
{
    return (lane & 1) * 8 + (lane >> 4 & 1) * 4 + (lane >> 3 & 1) * 2 + (lane >> 2 & 1);
}
static __device__ __forceinline__ u32 keeping_lane(u32 token)
{
    return token / 8 + (token >> 2 & 1) * 16 + (token >> 1 & 1) * 8 + (token & 1) * 4;
}

template <u32 DIM> struct room { // shared memory: what the warps found
    f32 row_max[4][WARPS], row_sum[4][WARPS];
    f32 sums[WARPS][4][DIM];
};

template <u32 DIM, u32 HEADS> struct state { // of a warp
    f32 q[HEADS == 1 ? DIM / 16 : 1]; // of dimensions lane / 2 + 16 i, times scale; several heads' lie where
                                      // the warp's sums will
    f32 row_max[HEADS], row_sum[HEADS];
    f32 sums[HEADS][8]; // of dimensions 8 (lane % lanes) + j, over the lane's tokens
};

template <u32 DIM, u32 HEADS>
static __device__ __forceinline__ void load_queries(const struct attend_params &p,
                                                    struct state<DIM, HEADS> &s, const struct kv_split &share,
                                                    struct room<DIM> &room)
{
    u32 lane = threadIdx.x & 31;

#pragma unroll
    for (u32 h = 0; h < HEADS; h++) {
        const f32 *q =
            p.q + ((u64)blockIdx.z * p.args.n_heads + share.head + min(h, share.n_heads - 1)) * DIM;
#pragma unroll
        for (u32 i = 0; i < DIM / 16; i++)
            if (HEADS == 1)
                s.q[i] = q[lane / 2 + 16 * i] * p.args.scale;
#pragma unroll
        for (u32 i = lane; i < DIM; i += 32)
            if (HEADS > 1)
                room.sums[threadIdx.x / 32][h][i] = q[i] * p.args.scale;
        s.row_max[h] = -INFINITY_F32;
        s.row_sum[h] = 0;
#pragma unroll
        for (u32 j = 0; j < 8; j++)
            s.sums[h][j] = 0;
    }
    __syncwarp();
}

// The weights of a page's tokens, each in the lane that keeps its score.
template <u32 DIM, u32 HEADS, u32 K, u32 V>
static __device__ __forceinline__ void
page_weights(struct state<DIM, HEADS> &s, const struct page<DIM, K, V> &page, const struct room<DIM> &room,
             bool seen, f32 (&weights)[HEADS])
{
    u32 lane = threadIdx.x & 31;
    f32 scores[HEADS][8] = {};

#pragma unroll
    for (u32 i = 0; i < page.n; i++) {
        f32 k[8];
        widen<K>(page.k[i], k);
        if (K == KV_Q8_0) {
            f32 scales[8];
            widen<KV_F16>(page.k_scales[i / 2], scales);
#pragma unroll
            for (u32 j = 0; j < 8; j++)
                k[j] *= scales[j];
        }
#pragma unroll
        for (u32 h = 0; h < HEADS; h++) {
            f32 q = HEADS == 1 ? s.q[i] : room.sums[threadIdx.x / 32][h][lane / 2 + 16 * i];
#pragma unroll
            for (u32 j = 0; j < 8; j++)
                scores[h][j] = fmaf(q, k[j], scores[h][j]);
        }
    }
#pragma unroll
    for (u32 h = 0; h < HEADS; h++) {
        f32 score = spread_sum(scores[h]);
        score = seen ? score : -INFINITY_F32;
        f32 row_max = fmaxf(s.row_max[h], warp_max(score)), rescale = expf(s.row_max[h] - row_max);
        weights[h] = expf(score - row_max); // every page has a token that is seen, so row_max is a number
        s.row_sum[h] = s.row_sum[h] * rescale + warp_sum(lane & 2 ? 0 : weights[h]);
        s.row_max[h] = row_max;
#pragma unroll
        for (u32 j = 0; j < 8; j++)
            s.sums[h][j] *= rescale;
    }
}

// Tokens that are not seen may hold anything: their values count as zero.
template <u32 DIM, u32 HEADS, u32 K, u32 V>
static __device__ __forceinline__ void page_values(struct state<DIM, HEADS> &s,
                                                   const struct page<DIM, K, V> &page, u32 first, u32 last,
                                                   const f32 (&weights)[HEADS])
{
    u32 lane = threadIdx.x & 31;

#pragma unroll
    for (u32 i = 0; i < page.n; i++) {
        u32 token = i * (32 / page.lanes) + lane / page.lanes;
        bool seen = token >= first && token <= last;
        f32 v[8];
        widen<V>(page.v[i], v);
#pragma unroll
        for (u32 j = 0; j < 8; j++)
            v[j] = !seen ? 0 : V == KV_Q8_0 ? v[j] * __half2float(page.v_scales[V == KV_Q8_0 ? i : 0]) : v[j];
#pragma unroll
        for (u32 h = 0; h < HEADS; h++) {
            f32 w = __shfl_sync(~0u, weights[h], keeping_lane(token));
#pragma unroll
            for (u32 j = 0; j < 8; j++)
                s.sums[h][j] = fmaf(w, v[j], s.sums[h][j]);
        }
    }
}

template <u32 DIM, u32 HEADS, u32 K, u32 V>
static __device__ __forceinline__ void
take_page(struct state<DIM, HEADS> &s, const struct page<DIM, K, V> &page, const struct room<DIM> &room,
          const struct seen_range &r, u32 at)
{
    u32 first = max(r.first, at * PAGE_TOKENS) - at * PAGE_TOKENS,
        last = min(r.position - at * PAGE_TOKENS, PAGE_TOKENS - 1);
    u32 token = kept_token(threadIdx.x & 31);
    f32 weights[HEADS];

    page_weights(s, page, room, token >= first && token <= last, weights);
    page_values(s, page, first, last, weights);
}

template <u32 DIM, u32 HEADS>
static __device__ __forceinline__ void put_state(struct state<DIM, HEADS> &s, struct room<DIM> &room)
{
    constexpr u32 lanes = DIM / 8; // that share a token of V
    u32 lane = threadIdx.x & 31, warp = threadIdx.x / 32;

#pragma unroll
    for (u32 h = 0; h < HEADS; h++) {
#pragma unroll
        for (u32 j = 0; j < 8; j++)
#pragma unroll
            for (u32 o = lanes; o < 32; o *= 2)
                s.sums[h][j] += __shfl_xor_sync(~0u, s.sums[h][j], o);
        if (lane < lanes) {
            *(float4 *)&room.sums[warp][h][lane * 8] =
                make_float4(s.sums[h][0], s.sums[h][1], s.sums[h][2], s.sums[h][3]);
            *(float4 *)&room.sums[warp][h][lane * 8 + 4] =
                make_float4(s.sums[h][4], s.sums[h][5], s.sums[h][6], s.sums[h][7]);
        }
        if (lane == 0) {
            room.row_max[h][warp] = s.row_max[h];
            room.row_sum[h][warp] = s.row_sum[h];
        }
    }
}

struct split_sums { // of a result that was split: sums of exp(score - row_max)
    f32 row_max, row_sum, sum;
};
static __device__ __forceinline__ void add_part(struct split_sums *to, f32 row_max, f32 row_sum, f32 sum)
{
    f32 new_max = fmaxf(to->row_max, row_max), rescale = expf(to->row_max - new_max),
        scale = expf(row_max - new_max);
    *to = { new_max, to->row_sum * rescale + row_sum * scale, to->sum * rescale + sum * scale };
}

// Number `at` of a row's result. A warp brings 32 side by side.
template <u32 DIM>
static __device__ __forceinline__ void put_result(const struct attend_params &p, u32 row, u32 at, f32 v)
{
    p.out[(u64)row * p.args.n_heads * DIM + at] = v;
    if (p.packed_out.at)
        pack_put_warp(p.packed_out, row, at / 32 * 32, v);
}

// The last block to arrive adds the parts of all, in order.
template <u32 DIM, bool SINKS>
static __device__ __forceinline__ void combine(const struct attend_params &p, const struct kv_split &s,
                                               u32 row)
{
    u64 place = (u64)row * p.args.n_heads + s.head;

    __threadfence();
    __syncthreads();
    bool last = threadIdx.x == 0 && atomicAdd(&p.arrived[place], 1) == s.n_splits - 1;
    if (!__syncthreads_or(last))
        return;
    __threadfence();
    for (u32 i = threadIdx.x; i < s.n_heads * DIM; i += ATTEND_FEW_THREADS) {
        const f32 *parts = p.partial + (place + i / DIM) * p.n_splits * 4 * (DIM + 2);
        struct split_sums all = { -INFINITY_F32, 0, 0 };
#pragma unroll 4
        for (u32 k = 0; k < s.n_splits; k++, parts += DIM + 2)
            add_part(&all, __ldcg(parts + DIM), __ldcg(parts + DIM + 1), __ldcg(parts + i % DIM));
        put_result<DIM>(p, row, s.head * DIM + i,
                        all.sum / attend_row_sum<SINKS>(p, s.head + i / DIM, all.row_max, all.row_sum));
    }
    if (threadIdx.x == 0)
        p.arrived[place] = 0;
}

template <u32 DIM, bool SINKS>
static __device__ __forceinline__ void
combine_warps(const struct attend_params &p, const struct room<DIM> &room, const struct kv_split &s, u32 row)
{
    u32 n_warps = min(s.end - s.first, (u32)WARPS);
    u64 place = (u64)row * p.args.n_heads + s.head;

    for (u32 i = threadIdx.x; i < s.n_heads * DIM; i += ATTEND_FEW_THREADS) {
        u32 h = i / DIM;
        f32 row_max = room.row_max[h][0], row_sum = 0, sum = 0;
        for (u32 w = 1; w < n_warps; w++)
            row_max = fmaxf(row_max, room.row_max[h][w]);
        for (u32 w = 0; w < n_warps; w++) {
            f32 scale = expf(room.row_max[h][w] - row_max);
            row_sum += room.row_sum[h][w] * scale;
            sum += room.sums[w][h][i % DIM] * scale;
        }
        if (s.n_splits == 1) {
            put_result<DIM>(p, row, s.head * DIM + i,
                            sum / attend_row_sum<SINKS>(p, s.head + h, row_max, row_sum));
            continue;
        }
        f32 *part = p.partial + ((place + h) * p.n_splits * 4 + s.split) * (DIM + 2);
        part[i % DIM] = sum;
        if (i % DIM == 0) {
            part[DIM] = row_max;
            part[DIM + 1] = row_sum;
        }
    }
    if (s.n_splits > 1)
        combine<DIM, SINKS>(p, s, row);
}

template <u32 DIM, u32 HEADS, u32 K, u32 V, bool SINKS>
static __device__ __forceinline__ void run_split(const struct attend_params &p, const struct seen_range &r,
                                                 const struct kv_split &s, struct room<DIM> &room)
{
    u32 at = s.first + threadIdx.x / 32, row = blockIdx.z;
    bool early = at < s.end && (at + 1) * PAGE_TOKENS <= r.old;
    struct page<DIM, K, V> page = {
        0
    };
    struct state<DIM, HEADS> state;

    if (early)
        load_page(p, page, r.table[at], s.kv);
    wait_for_inputs();
    if (at < s.end) {
        if (!early)
            load_page(p, page, r.table[at], s.kv);
        load_queries(p, state, s, room);
        for (;;) {
            take_page(state, page, room, r, at);
            at += WARPS;
            if (at >= s.end)
                break;
            load_page(p, page, r.table[at], s.kv);
        }
        __syncwarp();
        put_state(state, room);
    }
    __syncthreads();
    combine_warps<DIM, SINKS>(p, room, s, row);
}

template <u32 DIM, u32 K, u32 V, bool SINKS>
static __device__ __forceinline__ void attend_few(const struct attend_params &p)
{
    __shared__ __align__(16) struct room<DIM> room;
    u32 row = blockIdx.z;

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
    struct kv_split s = split_of(p, r);
    if (s.split >= s.n_splits) // need not wait: row 0's first share does, so this launch ends after the ones
                               // it depends on
        return;
    if (s.n_heads == 1)
        run_split<DIM, 1, K, V, SINKS>(p, r, s, room);
    else
        run_split<DIM, 4, K, V, SINKS>(p, r, s, room);
}

// Blocks an SM: a page of heads of 256 takes 128 registers.
#define BLOCKS(dim) ((dim) > 128 ? 1 : 2)
// Kernels named sinks are for models that have them: gpt-oss, whose heads are of 64.
#define ATTEND_FEW(dim, name, F, SINKS)                                           \
    extern "C" __global__ void __launch_bounds__(ATTEND_FEW_THREADS, BLOCKS(dim)) \
        attend_few_##dim##_##name(const __grid_constant__ struct attend_params p) \
    {                                                                             \
        attend_few<dim, F, F, SINKS>(p);                                          \
    }
#define FOR_DIM(dim)                      \
    ATTEND_FEW(dim, f16, KV_F16, false)   \
    ATTEND_FEW(dim, bf16, KV_BF16, false) \
    ATTEND_FEW(dim, q8_0, KV_Q8_0, false)
FOR_DIM(64)
FOR_DIM(128)
FOR_DIM(256)
ATTEND_FEW(64, f16_sinks, KV_F16, true)
ATTEND_FEW(64, bf16_sinks, KV_BF16, true)
ATTEND_FEW(64, q8_0_sinks, KV_Q8_0, true)
