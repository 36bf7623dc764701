// moe_simple.cu - a layer's experts for one row, in the forms that moe.cu is 3 to 6 % slower for: router,
// choice, gate and up, down, residual (a persistent kernel with exchanges through memory in place of
// launches).
//
// Bound by reading the chosen experts' weights, and by the time until they can be requested.
//
//   block b: its part of the shared expert's weights is requested
//            its rows of the router         -> logits --+
//            all logits, the choice       <-------------+   every block ranks for itself
//            its part of gate and up        -> hidden --+   weights by bulk copies, all requested at once
//            all hidden numbers           <-------------+
//            its columns of down, over all slots, + in  ->  out
//
//   grid: one block an SM, all of which run at once; block: 16 warps, one pair or column each
//
// Exchange: words in memory that is zero between launches. A word that has arrived is not zero: a zero is
// stored as -0. So there is no flag behind the data, and no fence is needed. Logits travel as fp32, hidden
// numbers as bf16. The last block to read them makes them zero again.
// Waiting ends only because all blocks run at once: moe_simple_cuda.c launches no more than there are SMs,
// each takes one, and later launches begin when all have begun. Activations are int8 with a scale for each
// 32, packed by every block for itself; the router is fp32. A column's sum is taken by one warp, lane l over
// blocks l, l + 32, ... of all slots' hidden numbers in a row: its order depends on the shape alone.
#include "gemm/cuda/activation.cuh"
#include "gemm/cuda/pipeline.cuh"
#include "gemm/cuda/row_int8.cuh"
#include "ops/experts/experts_gated.cuh"
#include "ops/moe/moe_simple.h"
#include "ops/route/route.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900 // bulk copies

enum { WARPS = MOE_THREADS / 32, MOST_OWN = 2 };

struct moe_simple_state {
    u64 full[MOE_MOST_ROUNDS + 1]; // barriers: of a round's weights, and of down's
    union {
        alignas(16) u64 keys[MOE_KEYS];                  // order of the experts, no two alike
        float2 pairs[MOE_MOST_ROUNDS * MOE_ROUND_PAIRS]; // sums, when the choice is made
    };
    f32 logits[MOE_MOST_EXPERTS];
    alignas(16) f32 sums[1 + MOST_OWN][WARPS]; // squares, then products with the block's rows of the router
    f32 weights[ROUTE_MAX_SLOTS];
    u32 ids[ROUTE_MAX_SLOTS];
    f32 factor; // the norm's
    u32 last;   // block
};
static_assert(sizeof(struct moe_simple_state) <= MOE_STATE, "");

struct simple_span {
    u32 first, n;
};

static __device__ __forceinline__ struct simple_span groups_of(u32 each, u32 more)
{
    u32 first = each * blockIdx.x + min(blockIdx.x, more), n = each + (blockIdx.x < more);
    return { first * MOE_GROUP, n * MOE_GROUP };
}

static __device__ __forceinline__ f32 no_zero(f32 v)
{
    return v == 0 ? -0.0f : v;
}
static __device__ __forceinline__ void publish(u32 *to, u32 word)
{
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
}
static __device__ __forceinline__ u32 await(const u32 *at)
{
    u32 v;
    do
        asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
    while (!v);
    return v;
}

static __device__ __forceinline__ bool is_there(const uint4 &v) // four words, each written at once
{
    return v.x && v.y && v.z && v.w;
}
static __device__ __forceinline__ uint4 load_word(const uint4 *at)
{
    uint4 v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at)
                 : "memory");
    return v;
}

// --- weights ---

// Row i of some whose planes lie behind each other.
static __device__ __forceinline__ struct plane_pointers row_of(const struct moe_simple_rows &r, const u8 *at,
                                                               u32 i)
{
    return { at + i * r.row[0], at + r.plane[1] + i * r.row[1], at + r.plane[2] + i * r.row[2],
             at + r.plane[3] + i * r.row[3] };
}
template <u32 F> static constexpr __device__ bool has_plane(u32 plane)
{
    return plane == 1 ? layout_high_bytes(F, 256) > 0 : plane == 3 ? layout_has_super_blocks(F) : true;
}
// One lane: rows [first, first + n) of a matrix to rows `to` and on of those at `at`; one plane.
static __device__ __forceinline__ void copy_plane(const struct moe_simple_rows &r, const u8 *plane, u32 i,
                                                  u32 first, u32 n, u32 at, u32 to, u32 full)
{
    copy_run(at + r.plane[i] + to * r.row[i], plane + (u64)first * r.row[i], n * r.row[i], full);
}

template <u32 F> struct block_weights {
    const struct moe_simple_params &p;
    struct moe_simple_state &s;
    u8 *shared;
    struct simple_span shared_pairs, pairs, columns;
    u32 n_rounds; // that this block has
    u32 slot, at; // of the first pair

    __device__ __forceinline__ block_weights(const struct moe_simple_params &p, struct moe_simple_state &s,
                                             u8 *shared)
        : p(p), s(s), shared(shared)
    {
        shared_pairs = groups_of(p.shared_groups, p.more_shared);
        pairs = groups_of(p.pair_groups, p.more_pairs);
        n_rounds = p.shared_rounds + (pairs.n + MOE_ROUND_PAIRS - 1) / MOE_ROUND_PAIRS;
        slot = pairs.first / p.n_ffn;
        at = pairs.first - slot * p.n_ffn;
        columns = groups_of(p.column_groups, p.more_columns);
    }
    __device__ __forceinline__ u32 full(u32 i) const
    {
        return shared_address(&s.full[i]);
    }
    __device__ __forceinline__ u32
    round_pairs(u32 i) const // of the shared expert's rounds the last may be empty
    {
        bool shared = i < p.shared_rounds;
        u32 n = shared ? shared_pairs.n : pairs.n,
            before = (shared ? i : i - p.shared_rounds) * MOE_ROUND_PAIRS;
        return min(n - min(n, before), (u32)MOE_ROUND_PAIRS);
    }
    // One thread, before any wait. The shared expert's weights are requested: they depend on nothing.
    __device__ __forceinline__ void begin() const
    {
        for (u32 i = 0; i <= p.n_rounds; i++)
            barrier_begin(full(i), 1);
        show_barriers();
        for (u32 i = 0; i < n_rounds; i++)
            expect_bytes(full(i), 2 * p.up.all * round_pairs(i));
        expect_bytes(full(p.n_rounds),
                     (p.route.n_slots * p.down.all + (p.n_shared ? p.shared_down.all : 0)) * columns.n);
        if (p.step->n_rows > 0 && p.n_shared > 0)
            copy_shared();
    }
    __device__ __forceinline__ void copy_shared() const
    {
        for (u32 i = 0; i < p.shared_rounds; i++) {
            u32 first = shared_pairs.first + i * MOE_ROUND_PAIRS, n = round_pairs(i),
                to = shared_address(shared) + 2 * i * p.round_bytes;
            if (n > 0) {
                copy_planes(p.up, p.w_shared_gate, first, n, to, full(i));
                copy_planes(p.up, p.w_shared_up, first, n, to + p.round_bytes, full(i));
            }
        }
        if (columns.n > 0)
            copy_planes(p.shared_down, p.w_shared_down, columns.first, columns.n,
                        shared_address(shared) + p.shared_down_at, full(p.n_rounds));
    }
    static __device__ __forceinline__ void copy_planes(const struct moe_simple_rows &r,
                                                       const struct weight_planes &w, u32 first, u32 n,
                                                       u32 to, u32 full)
    {
        copy_plane(r, w.quants, 0, first, n, to, 0, full);
        if (has_plane<F>(1))
            copy_plane(r, w.high, 1, first, n, to, 0, full);
        copy_plane(r, w.scales, 2, first, n, to, 0, full);
        if (has_plane<F>(3))
            copy_plane(r, w.deltas, 3, first, n, to, 0, full);
    }
    // Of the slots' rounds in turn, each of the first four warps a part: gate's or up's quants, or their
    // other planes. Lane 0 copies what belongs to a round's first slot, lane 1 to the second, if it has two.
    __device__ __forceinline__ void copy_rounds(u32 warp) const
    {
        u32 lane = threadIdx.x & 31;
        const struct weight_planes &w = warp & 1 ? p.w_up : p.w_gate;
        u32 slot = this->slot, at = this->at;

        for (u32 i = p.shared_rounds; i < n_rounds; i++) {
            u32 n = round_pairs(i), before = min(n, p.n_ffn - at), mine = lane ? n - before : before;
            u32 to = shared_address(shared) + (2 * i + (warp & 1)) * p.round_bytes, skip = lane ? before : 0;
            if (lane < 2 && mine > 0) {
                u32 first = s.ids[slot + lane] * p.n_ffn + (lane ? 0 : at);
                if (warp < 2)
                    copy_plane(p.up, w.quants, 0, first, mine, to, skip, full(i));
                if (warp >= 2 && has_plane<F>(1))
                    copy_plane(p.up, w.high, 1, first, mine, to, skip, full(i));
                if (warp >= 2)
                    copy_plane(p.up, w.scales, 2, first, mine, to, skip, full(i));
                if (warp >= 2 && has_plane<F>(3))
                    copy_plane(p.up, w.deltas, 3, first, mine, to, skip, full(i));
            }
            at += n;
            if (at >= p.n_ffn) {
                at -= p.n_ffn;
                slot++;
            }
        }
    }
    // A warp, a slot's columns of down: when the last round is there, since the slowest block's
    // gate and up are what all wait for.
    __device__ __forceinline__ void copy_slot(u32 slot) const
    {
        if ((threadIdx.x & 31) == 0 && columns.n > 0)
            copy_planes(p.down, p.w_down, s.ids[slot] * p.route.n_cols + columns.first, columns.n,
                        shared_address(shared) + p.down_at + slot * p.slot_bytes, full(p.n_rounds));
    }
};

// --- the router ---

// The row times the norm, as int8; its sum of squares and its products with up to two rows of the router.
// Eight columns a thread.
struct simple_router_part {
    struct float8 norm, rows[MOST_OWN], x; // x: the input times the norm
    u32 n, n_own;                          // eights of a row; experts of this block

    __device__ __forceinline__ void begin(const struct moe_simple_params &p) // before the input is there
    {
        n = p.route.n_cols / 8;
        n_own =
            blockIdx.x < p.route.n_experts ? (p.route.n_experts - blockIdx.x + gridDim.x - 1) / gridDim.x : 0;
        norm = load_eight(p.norm, threadIdx.x, n);
#pragma unroll
        for (u32 i = 0; i < MOST_OWN; i++)
            rows[i] = i < n_own ? load_eight(p.router + (u64)(blockIdx.x + i * gridDim.x) * p.route.n_cols,
                                             threadIdx.x, n)
                                : (struct float8){};
    }
    static __device__ __forceinline__ f32 dot(const struct float8 &a, const struct float8 &b)
    {
        return a.a.x * b.a.x + a.a.y * b.a.y + a.a.z * b.a.z + a.a.w * b.a.w + a.b.x * b.b.x + a.b.y * b.b.y +
               a.b.z * b.b.z + a.b.w * b.b.w;
    }
    __device__ __forceinline__ bool has_part() const // of this thread's warp
    {
        return threadIdx.x < (n + 31) / 32 * 32;
    }
    __device__ __forceinline__ void multiply(const struct moe_simple_params &p, struct moe_simple_state &s)
    {
        f32 sums[1 + MOST_OWN] = {};

        if (has_part()) {
            struct float8 v = load_eight(p.in, threadIdx.x, n);
            bool exists = threadIdx.x < n;
            sums[0] = exists ? squares_of(v) : 0;
            x = { make_float4(v.a.x * norm.a.x, v.a.y * norm.a.y, v.a.z * norm.a.z, v.a.w * norm.a.w),
                  make_float4(v.b.x * norm.b.x, v.b.y * norm.b.y, v.b.z * norm.b.z, v.b.w * norm.b.w) };
#pragma unroll
            for (u32 i = 0; i < MOST_OWN; i++)
                sums[1 + i] = exists && i < n_own ? dot(x, rows[i]) : 0;
#pragma unroll
            for (u32 i = 0; i <= MOST_OWN; i++)
                sums[i] = i <= n_own ? warp_sum(sums[i]) : 0;
        }
        if ((threadIdx.x & 31) == 0)
#pragma unroll
            for (u32 i = 0; i <= MOST_OWN; i++)
                s.sums[i][threadIdx.x / 32] = sums[i];
    }
    __device__ __forceinline__ void pack(const struct row_int8 &packed) const
    {
        const f32 numbers[8] = { x.a.x, x.a.y, x.a.z, x.a.w, x.b.x, x.b.y, x.b.z, x.b.w };
        if (has_part())
            quantise_eight(packed, threadIdx.x, numbers, threadIdx.x < n);
    }
};

static __device__ __forceinline__ f32 sum_of_warps(const f32 (&sums)[WARPS])
{
    const float4 *v = (const float4 *)sums, a = v[0], b = v[1], c = v[2], d = v[3];
    return ((a.x + a.y) + (a.z + a.w) + ((b.x + b.y) + (b.z + b.w))) +
           ((c.x + c.y) + (c.z + c.w) + ((d.x + d.y) + (d.z + d.w)));
}

static __device__ __forceinline__ void publish_logit(const struct moe_simple_params &p, u32 expert, f32 logit)
{
    publish(p.logits + expert * MOE_LOGIT_WORDS,
            __float_as_uint(no_zero(logit + (p.router_bias ? p.router_bias[expert] : 0))));
}

// A key for each expert: descending keys are the order of the choice.
static __device__ __forceinline__ u64 order_key(f32 v, u32 expert)
{
    u32 bits = __float_as_uint(v + 0.0f); // of the two zeros one
    return (u64)(bits >> 31 ? ~bits : bits | 0x80000000u) << 32 | (u32)~expert;
}

// All logits, which come from all blocks. Returns to all threads whether some logit is no number.
static __device__ __forceinline__ bool take_logits(const struct moe_simple_params &p,
                                                   struct moe_simple_state &s)
{
    u32 e = threadIdx.x;
    bool bad = false;

    if (e < p.route.n_experts) {
        f32 bias = p.select_bias ? p.select_bias[e] : 0,
            logit = __uint_as_float(await(p.logits + e * MOE_LOGIT_WORDS));
        bad = !isfinite(logit);
        s.logits[e] = logit;
        s.keys[e] = order_key(p.route.rule.scores == ROUTE_SIGMOID ? sigmoid(logit) + bias : logit, e);
    }
    for (u32 i = p.route.n_experts + threadIdx.x; i < MOE_KEYS; i += MOE_THREADS)
        s.keys[i] = 0;
    return __syncthreads_or(bad);
}

// Adds one if a is not less than b.
static __device__ __forceinline__ void count_from(u64 a, u64 b, u32 &n)
{
    asm("{\n\t.reg .u32 rest;\n\tsub.cc.u32 rest, %1, %3;\n\tsubc.cc.u32 rest, %2, %4;\n\taddc.u32 %0, %0, "
        "0;\n\t}"
        : "+r"(n)
        : "r"((u32)a), "r"((u32)(a >> 32)), "r"((u32)b), "r"((u32)(b >> 32)));
}

// An expert's place is the number of larger keys: 2^rank_log2 threads count the others for an expert, sixteen
// keys at a time. Behind the experts' keys lie zeros.
static __device__ __forceinline__ void rank_experts(const struct moe_simple_params &p,
                                                    struct moe_simple_state &s)
{
    u32 n = p.route.n_experts, step = 1u << p.rank_log2, e = threadIdx.x >> p.rank_log2, below = 0, seen = 0;
    u64 mine = s.keys[min(e, n - 1)];
    const ulonglong2 *keys = (const ulonglong2 *)s.keys;

    for (u32 i = threadIdx.x & (step - 1); i < (n + 1) / 2; i += 8 * step, seen += 16)
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            ulonglong2 v = keys[i + k * step];
            count_from(mine, v.x, below);
            count_from(mine, v.y, below);
        }
    u32 above = seen - below;
    for (u32 o = 1; o < step; o *= 2)
        above += __shfl_xor_sync(~0u, above, o);
    if (e < n && above < p.route.n_slots && (threadIdx.x & (step - 1)) == 0)
        s.ids[above] = e;
}

// A warp: the slots' weights.
static __device__ __forceinline__ void weigh_slots(const struct moe_simple_params &p,
                                                   struct moe_simple_state &s, bool bad)
{
    u32 lane = threadIdx.x & 31, n = p.route.n_slots;
    f32 score = lane < n ? s.logits[s.ids[lane]] : 0, top = -INFINITY, sum = 0;

    if (p.route.rule.scores == ROUTE_SOFTMAX) {
        for (u32 e = lane; e < p.route.n_experts; e += 32)
            top = fmaxf(top, s.logits[e]);
        top = warp_max(top);
        for (u32 e = lane; e < p.route.n_experts; e += 32)
            sum += expf(s.logits[e] - top);
        score = expf(score - top) / warp_sum(sum);
    } else if (p.route.rule.scores == ROUTE_SIGMOID) {
        score = sigmoid(score);
    }
    score = route_weigh(p.route.rule, score, n);
    if (lane < n)
        s.weights[lane] = bad ? __int_as_float(0x7fffffff) : score;
    if (blockIdx.x == 0 && lane < n)
        p.ids[lane] = (f32)s.ids[lane];
}

// --- the products ---

// N rows of weights times the row in shared memory, by a warp.
template <u32 F, u32 N>
static __device__ __forceinline__ void dot_rows(const struct plane_pointers (&rows)[N],
                                                const struct row_int8 &x, u32 n_blocks, f32 (&sums)[N])
{
#pragma unroll 2
    for (u32 at = threadIdx.x & 31; at < n_blocks; at += 32) {
        struct facing<F> facing = face<F>(x, at);
#pragma unroll
        for (u32 r = 0; r < N; r++)
            sums[r] = dot_block<F>(block_at<F, false>(rows[r], at), facing, sums[r]);
    }
}

// Both sums over a warp; lane 0 has the first, lane 16 the second.
static __device__ __forceinline__ f32 sum_both(f32 first, f32 second)
{
    bool upper = threadIdx.x & 16;
    f32 mine = (upper ? second : first) + __shfl_xor_sync(~0u, upper ? first : second, 16);
#pragma unroll
    for (u32 o = 8; o; o >>= 1)
        mine += __shfl_xor_sync(~0u, mine, o);
    return mine;
}

template <u32 F>
static __device__ __forceinline__ void gate_and_up(const struct block_weights<F> &w, const struct row_int8 &x)
{
    const struct moe_simple_params &p = w.p;
    u32 warp = threadIdx.x / 32;

#pragma unroll 1
    for (u32 i = 0; i < w.n_rounds; i++) {
        const u8 *at = w.shared + 2 * i * p.round_bytes;
        wait_for_stage(w.full(i), 0);
        for (u32 slot = warp; i == w.n_rounds - 1 && slot < p.route.n_slots; slot += WARPS)
            w.copy_slot(slot);
        if (warp >= w.round_pairs(i))
            continue;
        const struct plane_pointers rows[2] = { row_of(p.up, at, warp),
                                                row_of(p.up, at + p.round_bytes, warp) };
        f32 sums[2] = {};
        dot_rows<F>(rows, x, p.route.n_cols / 32, sums);
        f32 sum = sum_both(sums[0], sums[1]);
        if ((threadIdx.x & 15) == 0)
            ((f32 *)w.s.pairs)[(i * MOE_ROUND_PAIRS + warp) * 2 + (threadIdx.x & 31) / 16] = sum;
    }
}

// The block's hidden numbers, a thread each; two neighbours make a word.
template <u32 F> static __device__ __forceinline__ void publish_hidden(const struct block_weights<F> &w)
{
    const struct moe_simple_params &p = w.p;
    u32 n_shared = p.shared_rounds * MOE_ROUND_PAIRS;

    if (threadIdx.x >= (p.n_rounds * MOE_ROUND_PAIRS + 31) / 32 * 32)
        return;
    bool shared = threadIdx.x < n_shared;
    struct simple_span pairs = shared ? w.shared_pairs : w.pairs;
    u32 i = shared ? threadIdx.x : threadIdx.x - n_shared,
        first = shared ? p.route.n_slots * p.n_ffn + pairs.first : pairs.first;
    bool exists = i < pairs.n;
    f32 factor = w.s.factor;
    float2 sums = exists ? w.s.pairs[threadIdx.x] : make_float2(0, 0);
    f32 v = experts_gated(p.activation, p.limit, sums.x * factor, sums.y * factor);
    u32 bits = __bfloat16_as_ushort(__float2bfloat16_rn(v)), next;

    bits = bits ? bits : 0x8000;
    next = __shfl_down_sync(~0u, bits, 1);
    if (exists && i % 2 == 0)
        publish(p.hidden + (first + i) / 2, bits | next << 16);
}

// All hidden numbers, which come from all blocks, as int8: the slots one behind the other, then the shared
// expert. Two words of eight at a time.
static __device__ __forceinline__ void take_hidden(const struct moe_simple_params &p,
                                                   const struct row_int8 &h)
{
    u32 n = p.n_hidden / 8, end = (n + 31) / 32 * 32;
    const uint4 *words = (const uint4 *)p.hidden;

    for (u32 first = threadIdx.x; first < end; first += 2 * MOE_THREADS) {
        u32 at[2] = { min(first, n - 1), min(first + MOE_THREADS, n - 1) };
        uint4 v[2];
        do {
            v[0] = load_word(words + at[0]);
            v[1] = load_word(words + at[1]);
        } while (!is_there(v[0]) || !is_there(v[1]));
#pragma unroll
        for (u32 k = 0; k < 2; k++) {
            u32 i = first + k * MOE_THREADS;
            const u32 twos[4] = { v[k].x, v[k].y, v[k].z, v[k].w };
            f32 numbers[8];
#pragma unroll
            for (u32 j = 0; j < 8; j++)
                numbers[j] = __uint_as_float(j % 2 ? twos[j / 2] & 0xffff0000 : twos[j / 2] << 16);
            if (i < end)
                quantise_eight(h, i, numbers, i < n);
        }
    }
}

// One warp a column.
template <u32 F>
static __device__ __forceinline__ void down_columns(const struct block_weights<F> &w,
                                                    const struct row_int8 &h)
{
    const struct moe_simple_params &p = w.p;
    u32 lane = threadIdx.x & 31, n_blocks = p.n_ffn / 32, slots = 32 / n_blocks,
        blocks = 32 - slots * n_blocks, n_routed = p.route.n_slots * n_blocks;

    for (u32 c = threadIdx.x / 32; c < w.columns.n; c += WARPS) {
        u32 slot = lane / n_blocks, block = lane - slot * n_blocks;
        f32 in = p.in[w.columns.first + c], sum = 0;
        wait_for_stage(w.full(p.n_rounds), 0);
#pragma unroll 2
        for (u32 at = lane; at < n_routed; at += 32) {
            struct plane_pointers row = row_of(p.down, w.shared + p.down_at + slot * p.slot_bytes, c);
            f32 part = dot_block<F>(block_at<F, false>(row, block), face<F>(h, at), 0);
            sum = fmaf(w.s.weights[slot], part, sum);
            slot += slots;
            block += blocks;
            if (block >= n_blocks) {
                block -= n_blocks;
                slot++;
            }
        }
        struct plane_pointers row = row_of(p.shared_down, w.shared + p.shared_down_at, c);
#pragma unroll 2
        for (u32 at = lane; at < p.n_shared / 32; at += 32)
            sum = dot_block<F>(block_at<F, false>(row, at), face<F>(h, n_routed + at), sum);
        sum = warp_sum(sum);
        if (lane == 0)
            p.out[w.columns.first + c] = in + sum;
    }
}

static __device__ __forceinline__ void make_zero(const struct moe_simple_params &p)
{
    for (u32 i = threadIdx.x; i < p.route.n_experts; i += MOE_THREADS)
        p.logits[i * MOE_LOGIT_WORDS] = 0;
    for (u32 i = threadIdx.x; i < p.n_hidden / 8; i += MOE_THREADS)
        ((uint4 *)p.hidden)[i] = make_uint4(0, 0, 0, 0);
    if (threadIdx.x == 0)
        *p.arrived = 0;
}

template <u32 F> static __device__ __forceinline__ void moe_simple(const struct moe_simple_params &p)
{
    extern __shared__ __align__(128) u8 moe_shared[];
    struct moe_simple_state &s = *(struct moe_simple_state *)(moe_shared + p.state_at);
    struct block_weights<F> w(p, s, moe_shared);
    struct row_int8 x = row_int8_at(moe_shared + p.row_at, p.route.n_cols / 32);
    struct row_int8 h = row_int8_at(moe_shared, p.n_hidden / 32);
    struct simple_router_part router;
    u32 warp = threadIdx.x / 32, arrived = 0;

    router.begin(p);
    if (threadIdx.x == MOE_THREADS - 1)
        w.begin();
    wait_before_next();
    let_next_begin();
    if (p.step->n_rows == 0)
        return;
    router.multiply(p, s);
    __syncthreads();
    if (warp < MOST_OWN && (threadIdx.x & 31) == 0) {
        f32 factor = rsqrtf(sum_of_warps(s.sums[0]) * p.inverse_cols + p.route.eps);
        if (warp < router.n_own)
            publish_logit(p, blockIdx.x + warp * gridDim.x, sum_of_warps(s.sums[1 + warp]) * factor);
        if (warp == 0)
            s.factor = factor;
    }
    router.pack(x); // while the logits travel
    bool bad = take_logits(p, s);
    if (!bad)
        rank_experts(p, s);
    else if (threadIdx.x < p.route.n_slots)
        s.ids[threadIdx.x] = threadIdx.x;
    __syncthreads();
    if (warp < 4)
        w.copy_rounds(warp);
    if (warp == WARPS - 1)
        weigh_slots(p, s, bad);
    gate_and_up(w, x);
    __syncthreads();
    publish_hidden(w);
    take_hidden(p, h);
    __syncthreads();
    if (threadIdx.x == 0)
        arrived = atomicAdd(p.arrived, 1);
    down_columns(w, h);
    if (threadIdx.x == 0)
        s.last = arrived == gridDim.x - 1;
    __syncthreads();
    if (s.last)
        make_zero(p);
}

#define MOE_ROW(NAME, name, with)                                             \
    extern "C" __global__ void __launch_bounds__(MOE_THREADS, 1)              \
        moe_simple_##name(const __grid_constant__ struct moe_simple_params p) \
    {                                                                         \
        moe_simple<QUANT_##NAME>(p);                                          \
    }
QUANT_BLOCK_FORMATS(MOE_ROW, )
#endif
