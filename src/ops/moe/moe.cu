// moe.cu - a layer's experts for one row of activations in one launch: router, choice, gate and up, down,
// residual (a persistent kernel with exchanges through memory in place of launches).
//
// Bound by reading the chosen experts' weights, and by the time until they can be requested.
//
//   block b: its part of the shared expert's weights is requested
//            its rows of the router         -> logits --+
//            all logits, the choice       <-------------+   every block chooses for itself
//            its part of gate and up        -> hidden --+   weights by bulk copies
//            all hidden numbers           <-------------+
//            its columns of down, over all slots, + in  ->  out
//
//   grid: one block an SM, all of which run at once; block: 16 warps, a pair each, and two columns for two
//
// Pipeline: gate and up come in rounds of 16 pairs, down by slots. Where shared memory holds all of a block's
// weights, all are requested when the ids are known; else rounds take turns, and the last warp to leave a
// round requests what comes to its place. The gate of a shared expert is one more row of the router.
// Exchange: words in memory that is zero between launches. A word that has arrived is not zero: a zero is
// stored as -0. So there is no flag behind the data, and no fence is needed. Logits travel as fp32, hidden
// numbers as bf16. The last block to read them makes them zero again.
// Waiting ends only because all blocks run at once: moe_cuda.c launches no more than there are SMs, each
// takes one, and later launches begin when all have begun.
// Activations are int8 with a scale for each 32, packed by every block for itself; the router is fp32. Hidden
// numbers are exchanged times their slot's weight. A column's sum is taken by two warps, lane l of them over
// blocks l, l + 64, ... and l + 32, l + 96, ... of all slots' hidden numbers in a row: its order depends on
// the shape alone.
#include "device/cuda/words.cuh"
#include "ops/moe/moe.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900 // bulk copies

enum { WARPS = MOE_THREADS / 32, MOST_OWN = 2 };

struct moe_state {
    u64 full[MOE_MOST_ROUNDS + 1]; // barriers: of a round's weights, and of down's
    union {
        u32 keys[MOE_MOST_EXPERTS];                      // order of the experts; 0: none
        float2 pairs[MOE_MOST_ROUNDS * MOE_ROUND_PAIRS]; // sums, when the choice is made
        f32 columns[2][MOE_MOST_COLUMNS];                // sums of down, by halves
    };
    f32 logits[MOE_MOST_EXPERTS + 1];
    alignas(16) f32 sums[1 + MOST_OWN][WARPS]; // squares, then products with the block's rows of the router
    f32 weights[ROUTE_MAX_SLOTS + 1];          // of the slots, then of the shared expert
    u32 ids[ROUTE_MAX_SLOTS];
    u32 left[MOE_MOST_ROUNDS]; // warps that are done with a round
    f32 factor;                // of the experts' norm
    u32 last;                  // block
};
static_assert(sizeof(struct moe_state) <= MOE_STATE, "");

// --- weights ---

// F: the format of gate and up; G: of down. A block's rounds: the shared expert's, then the slots'.
template <u32 F, u32 G> struct block_weights {
    const struct moe_params &p;
    struct moe_state &s;
    u8 *shared;
    struct span of_shared, of_slots, columns;
    u32 n_rounds, slot, at; // the first of the slots' rounds: at * 16 pairs into a slot

    __device__ __forceinline__ block_weights(const struct moe_params &p, struct moe_state &s, u8 *shared)
        : p(p), s(s), shared(shared)
    {
        of_shared = span_of(p.shared_rounds, p.more_shared, gridDim.x - 1 - blockIdx.x);
        of_slots = span_of(p.rounds, p.more_rounds, blockIdx.x);
        columns = groups_of(p.column_groups, p.more_columns);
        n_rounds = of_shared.n + of_slots.n;
        slot = of_slots.first / p.slot_rounds;
        at = of_slots.first - slot * p.slot_rounds;
    }
    __device__ __forceinline__ u32 full(u32 i) const
    {
        return shared_address(&s.full[i]);
    }
    __device__ __forceinline__ u32 stage(u32 i) const
    {
        return shared_address(shared) + (p.at.turns ? i % p.at.n_stages : i) * p.at.stage_bytes;
    }
    __device__ __forceinline__ u32 slot_at(u32 j) const
    {
        return j * p.at.slot_bytes + (j < p.at.own_slots ? p.at.own_at : p.at.others_at);
    }
    // One thread, before any wait. The shared expert's weights are requested: they depend on nothing.
    __device__ __forceinline__ void begin(u32 n_rows) const
    {
#pragma unroll 1
        for (u32 i = 0; i <= p.n_rounds; i++)
            barrier_begin(full(i), 1);
        show_barriers();
#pragma unroll 1
        for (u32 i = 0; i < n_rounds; i++)
            expect_bytes(full(i), 2 * p.up.all * MOE_ROUND_PAIRS);
        expect_bytes(full(p.n_rounds),
                     (p.route.n_slots * p.down.all + (p.n_shared ? p.shared_down.all : 0)) * columns.n);
        if (n_rows == 0 || p.n_shared == 0)
            return;
#pragma unroll 1
        for (u32 k = 0; k < 4 * min(of_shared.n, p.at.n_stages); k++)
            copy_part(k / 4, k % 4, 0);
        if (columns.n > 0)
            copy_columns(p.shared_down, p.w_shared_down, columns.first, p.at.shared_at);
    }
    __device__ __forceinline__ void copy_columns(const struct moe_rows &r, const struct weight_planes &w,
                                                 u32 first, u32 to) const
    {
        to += shared_address(shared);
        copy_plane(r, w.quants, 0, first, columns.n, to, 0, full(p.n_rounds));
        copy_rest<G>(r, w, first, columns.n, to, 0, full(p.n_rounds));
    }
    // One lane, a part of round i: gate's (0, 2) or up's (1, 3) quants (0, 1) or other planes (2, 3). row: of
    // the slots' matrices.
    __device__ __forceinline__ void copy_part(u32 i, u32 part, u32 row) const
    {
        bool is_shared = i < of_shared.n;
        const struct weight_planes &w = is_shared  ? part & 1 ? p.w_shared_up : p.w_shared_gate
                                        : part & 1 ? p.w_up
                                                   : p.w_gate;
        u32 to = stage(i) + (part & 1) * (p.at.stage_bytes / 2);
        if (is_shared)
            row = (of_shared.first + i) * MOE_ROUND_PAIRS;
        if (part < 2)
            copy_plane(p.up, w.quants, 0, row, MOE_ROUND_PAIRS, to, 0, full(i));
        else
            copy_rest<F>(p.up, w, row, MOE_ROUND_PAIRS, to, 0, full(i));
    }
    // A warp: a part of the slots' rounds that have places, one after the other: requested all at once by
    // more warps, all come late (measured: bench/results/2026-11-28-h200-experts.md). id: in lane j, slot
    // j's.
    __device__ __forceinline__ void copy_rounds(u32 part, u32 id) const
    {
        u32 slot = this->slot, at = this->at;

#pragma unroll 1
        for (u32 i = of_shared.n; i < min(n_rounds, p.at.n_stages); i++) {
            u32 row = __shfl_sync(~0u, id, slot) * p.n_ffn + at * MOE_ROUND_PAIRS;
            if (elect_one())
                copy_part(i, part, row);
            at++;
            if (at == p.slot_rounds) {
                at = 0;
                slot++;
            }
        }
    }
    // A slot's columns of down, by one lane.
    __device__ __forceinline__ void copy_slot(u32 slot) const
    {
        if (columns.n > 0)
            copy_columns(p.down, p.w_down, s.ids[slot] * p.route.n_cols + columns.first, slot_at(slot));
    }
    // Of the slots that have places of their own, a warp one: when the last round is there, since the slowest
    // block's gate and up are what all wait for.
    __device__ __forceinline__ void copy_own_slots() const
    {
#pragma unroll 1
        for (u32 slot = threadIdx.x / 32; slot < p.at.own_slots; slot += WARPS)
            if (elect_one())
                copy_slot(slot);
    }
    // Where rounds have places in turn: a warp has multiplied round i. The last one requests what comes next.
    __device__ __forceinline__ void leave_round(u32 i) const
    {
        u32 lane = threadIdx.x & 31, left = 0, next = i + p.at.n_stages,
            first = i > 0 ? p.at.free_slots[i - 1] : 0,
            last = i == n_rounds - 1 ? p.route.n_slots - p.at.own_slots : p.at.free_slots[i];

        __syncwarp();
        if (lane == 0) {
            __threadfence_block();
            left = atomicAdd(&s.left[i], 1);
        }
        if (__shfl_sync(~0u, left, 0) != WARPS - 1)
            return;
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        if (next < n_rounds && lane < 4) {
            u32 round = at + next - of_shared.n, skipped = round / p.slot_rounds;
            u32 row = next < of_shared.n ? 0
                                         : s.ids[slot + skipped] * p.n_ffn +
                                               (round - skipped * p.slot_rounds) * MOE_ROUND_PAIRS;
            copy_part(next, lane, row);
        }
        for (u32 j = first + lane; j < last; j += 32)
            copy_slot(p.at.own_slots + j);
    }
};

// --- the router ---

static __device__ __forceinline__ struct float8 times(const struct float8 &v, const struct float8 &w)
{
    return { make_float4(v.a.x * w.a.x, v.a.y * w.a.y, v.a.z * w.a.z, v.a.w * w.a.w),
             make_float4(v.b.x * w.b.x, v.b.y * w.b.y, v.b.z * w.b.z, v.b.w * w.b.w) };
}

// The row times the norm, as int8; its sum of squares and its products with up to two rows of the router.
// Eight columns a thread.
struct router_part {
    struct float8 norm, expert_norm, rows[MOST_OWN], x; // x: the input times the experts' norm
    u32 n, n_own;                                       // eights of a row; logits of this block

    __device__ __forceinline__ void begin(const struct moe_params &p) // before the input is there
    {
        n = p.route.n_cols / 8;
        n_own = blockIdx.x < p.n_logits ? (p.n_logits - blockIdx.x + gridDim.x - 1) / gridDim.x : 0;
        norm = load_eight(p.norm, threadIdx.x, n);
        expert_norm = p.expert_norm ? load_eight(p.expert_norm, threadIdx.x, n) : norm;
#pragma unroll
        for (u32 i = 0; i < MOST_OWN; i++) {
            u32 row = blockIdx.x + i * gridDim.x;
            const f32 *at = row < p.route.n_experts ? p.router + (u64)row * p.route.n_cols : p.shared_gate;
            rows[i] = i < n_own ? load_eight(at, threadIdx.x, n) : (struct float8){};
        }
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
    __device__ __forceinline__ void multiply(const struct moe_params &p, struct moe_state &s)
    {
        f32 sums[1 + MOST_OWN] = {};

        if (has_part()) {
            struct float8 v = load_eight(p.in, threadIdx.x, n), routed = times(v, norm);
            bool exists = threadIdx.x < n;
            sums[0] = exists ? squares_of(v) : 0;
            x = times(v, expert_norm);
#pragma unroll
            for (u32 i = 0; i < MOST_OWN; i++)
                sums[1 + i] = exists && i < n_own ? dot(routed, rows[i]) : 0;
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

static __device__ __forceinline__ void publish_logit(const struct moe_params &p, u32 row, f32 logit)
{
    bool biased = p.router_bias && row < p.route.n_experts;
    publish_number(p.logits + row * MOE_LOGIT_WORDS, logit + (biased ? p.router_bias[row] : 0));
}

// Both factors, and the block's logits.
static __device__ __forceinline__ void publish_logits(const struct moe_params &p, struct moe_state &s,
                                                      u32 n_own)
{
    u32 i = threadIdx.x / 32;
    f32 factor = rsqrtf(sum_of_warps(s.sums[0]) * p.inverse_cols + p.route.eps);

    if (i < n_own)
        publish_logit(p, blockIdx.x + i * gridDim.x, sum_of_warps(s.sums[1 + i]) * (factor * p.route.gain));
    if (i == 0)
        s.factor = p.expert_norm ? factor : factor * p.route.gain;
}

// All logits, which come from all blocks. Returns to all threads whether some logit is no number.
static __device__ __forceinline__ bool take_logits(const struct moe_params &p, struct moe_state &s)
{
    u32 e = threadIdx.x;
    bool bad = false;

    if (e < p.n_logits) {
        f32 bias = p.select_bias && e < p.route.n_experts ? p.select_bias[e] : 0,
            logit = await_number(p.logits + e * MOE_LOGIT_WORDS);
        bad = !isfinite(logit);
        s.logits[e] = logit;
        if (e < p.route.n_experts)
            s.keys[e] = order_key(p.route.rule.scores == ROUTE_SIGMOID ? sigmoid(logit) + bias : logit);
    }
    return __syncthreads_or(bad);
}

// A warp. Lane j: the expert of slot j; of a bad row the first ones.
template <u32 N>
static __device__ __forceinline__ u32 choose_slots(const struct moe_params &p, const struct moe_state &s)
{
    u32 lane = threadIdx.x & 31, keys[N];

#pragma unroll
    for (u32 i = 0; i < N; i++)
        keys[i] = i * 32 + lane < p.route.n_experts ? s.keys[i * 32 + lane] : 0;
    return choose(keys, p.route.n_slots);
}

// A warp: the slots' weights, and the shared expert's.
static __device__ __forceinline__ void weigh_slots(const struct moe_params &p, struct moe_state &s, u32 id,
                                                   bool bad)
{
    u32 lane = threadIdx.x & 31, n = p.route.n_slots;
    f32 top = -INFINITY, sum = 0;

    if (p.route.rule.scores == ROUTE_SOFTMAX) {
#pragma unroll 1
        for (u32 e = lane; e < p.route.n_experts; e += 32)
            top = fmaxf(top, s.logits[e]);
        top = warp_max(top);
#pragma unroll 1
        for (u32 e = lane; e < p.route.n_experts; e += 32)
            sum += expf(s.logits[e] - top);
        sum = warp_sum(sum);
    }
    f32 weight = slot_weight(p, id, s.logits[lane < n ? id : 0], top, sum);
    if (lane < n)
        s.weights[lane] = bad ? NOT_A_NUMBER : weight;
    if (lane == 0)
        s.weights[n] = bad ? NOT_A_NUMBER : shared_weight(p, s.logits);
    if (blockIdx.x == 0 && lane < n)
        p.ids[lane] = (f32)id;
}

// The first four warps choose, each for itself, and request a part of the rounds each.
template <u32 F, u32 G>
static __device__ __forceinline__ void choose_and_request(const struct block_weights<F, G> &w, bool bad)
{
    const struct moe_params &p = w.p;
    u32 warp = threadIdx.x / 32, lane = threadIdx.x & 31, id = lane;

    if (!bad)
        id = p.route.n_experts <= 128 ? choose_slots<4>(p, w.s) : choose_slots<8>(p, w.s);
    w.copy_rounds(warp, id);
    if (warp == 0 && lane < p.route.n_slots)
        w.s.ids[lane] = id;
    if (warp == 3)
        weigh_slots(p, w.s, id, bad);
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

template <u32 F, u32 G>
static __device__ __forceinline__ void gate_and_up(const struct block_weights<F, G> &w,
                                                   const struct row_int8 &x)
{
    const struct moe_params &p = w.p;
    u32 warp = threadIdx.x / 32, end = p.at.n_stages * p.at.stage_bytes, at = 0;

#pragma unroll 1
    for (u32 i = 0; i < w.n_rounds; i++) {
        wait_for_stage(w.full(i), 0);
        if (i == w.n_rounds - 1)
            w.copy_own_slots();
        const struct plane_pointers rows[2] = { row_of(p.up, w.shared + at, warp),
                                                row_of(p.up, w.shared + at + p.at.stage_bytes / 2, warp) };
        f32 sums[2] = {};
        dot_rows<F>(rows, x, p.route.n_cols / 32, sums);
        f32 sum = sum_both(sums[0], sums[1]);
        if ((threadIdx.x & 15) == 0)
            ((f32 *)w.s.pairs)[(i * MOE_ROUND_PAIRS + warp) * 2 + (threadIdx.x & 31) / 16] = sum;
        if (p.at.turns)
            w.leave_round(i);
        at += p.at.stage_bytes;
        at = at == end ? 0 : at;
    }
}

// A thread's hidden number.
struct hidden_number {
    u32 at, slot; // of all, if it exists; the shared expert's slot is behind the others
    bool exists;
    f32 bias[2]; // of gate and up

    template <u32 F, u32 G> __device__ __forceinline__ void begin(const struct block_weights<F, G> &w)
    {
        const struct moe_params &p = w.p;
        u32 i = threadIdx.x / MOE_ROUND_PAIRS;
        bool is_shared = i < w.of_shared.n;

        exists = i < w.n_rounds;
        at = threadIdx.x + MOE_ROUND_PAIRS * (is_shared ? p.route.n_slots * p.slot_rounds + w.of_shared.first
                                                        : w.of_slots.first - w.of_shared.n);
        slot = is_shared ? p.route.n_slots : at / p.n_ffn;
        bias[0] = bias[1] = 0;
        if (!exists || is_shared || !p.gate_bias)
            return;
        u64 row = (u64)w.s.ids[slot] * p.n_ffn + at - slot * p.n_ffn;
        bias[0] = p.gate_bias[row];
        bias[1] = p.up_bias[row];
    }
};

// The block's hidden numbers, times their slot's weight, a thread each; two neighbours make a word.
static __device__ __forceinline__ void publish_hidden(const struct moe_params &p, const struct moe_state &s,
                                                      const struct hidden_number &h)
{
    if (!__any_sync(~0u, h.exists))
        return;
    f32 factor = s.factor;
    float2 sums = h.exists ? s.pairs[threadIdx.x] : make_float2(0, 0);
    f32 weight = h.exists ? s.weights[h.slot] : 0;
    f32 v = experts_gated(p.activation, p.limit, fmaf(sums.x, factor, h.bias[0]),
                          fmaf(sums.y, factor, h.bias[1]));
    u32 bits = __bfloat16_as_ushort(__float2bfloat16_rn(v * weight)), next;

    bits = bits ? bits : 0x8000;
    next = __shfl_down_sync(~0u, bits, 1);
    if (h.exists && h.at % 2 == 0)
        publish(p.hidden + h.at / 2, bits | next << 16);
}

// All hidden numbers, which come from all blocks, as int8: the slots one behind the other, then the shared
// expert. Two words of eight at a time.
static __device__ __forceinline__ void take_hidden(const struct moe_params &p, const struct row_int8 &h)
{
    u32 n = p.n_hidden / 8, end = (n + 31) / 32 * 32;

    for (u32 first = threadIdx.x; first < end; first += 2 * MOE_THREADS) {
        u32 at[2] = { min(first, n - 1), min(first + MOE_THREADS, n - 1) };
        uint4 v[2];
        do {
            v[0] = load_four(p.hidden + 4 * at[0]);
            v[1] = load_four(p.hidden + 4 * at[1]);
        } while (!are_there(v[0]) || !are_there(v[1]));
#pragma unroll
        for (u32 k = 0; k < 2; k++) {
            u32 i = first + k * MOE_THREADS;
            f32 numbers[8];
            open_pairs(v[k], numbers);
            if (i < end)
                quantise_eight(h, i, numbers, i < n);
        }
    }
}

// Every `step`-th block of 32 of all slots' in a row, from the first on.
struct lane_blocks {
    u32 slot, block, slots, blocks, n; // now; of a step; blocks of a slot

    __device__ __forceinline__ lane_blocks(u32 n, u32 first, u32 step)
        : slot(0), block(first), slots(0), blocks(step), n(n)
    {
        for (; blocks >= n; slots++)
            blocks -= n;
        for (; block >= n; slot++)
            block -= n;
    }
    __device__ __forceinline__ void next()
    {
        slot += slots;
        block += blocks;
        if (block >= n) {
            block -= n;
            slot++;
        }
    }
};

// Two warps have two columns: one the blocks l, l + 64, ... of lane l, the other those between. The slots'
// weights are in the hidden numbers.
template <u32 F, u32 G> struct down_part {
    const struct block_weights<F, G> &w;
    const struct row_int8 &h;
    u32 first; // block of this lane

    __device__ __forceinline__ void add(const struct plane_pointers (&rows)[2], u32 block, u32 at,
                                        f32 (&sums)[2]) const
    {
        struct facing<G> f = face<G>(h, at);
        sums[0] = dot_block<G>(block_at<G, false>(rows[0], block), f, sums[0]);
        sums[1] = dot_block<G>(block_at<G, false>(rows[1], block), f, sums[1]);
    }
    __device__ __forceinline__ void multiply(u32 c, f32 (&sums)[2]) const
    {
        const struct moe_params &p = w.p;
        u32 n_routed = p.route.n_slots * (p.n_ffn / 32);
        struct lane_blocks b(p.n_ffn / 32, first, 64);

        wait_for_stage(w.full(p.n_rounds), 0);
#pragma unroll 1
        for (u32 at = first; at < n_routed; at += 64, b.next()) {
            const u8 *slot = w.shared + w.slot_at(b.slot);
            add({ row_of(p.down, slot, c), row_of(p.down, slot, c + 1) }, b.block, at, sums);
        }
        const u8 *shared = w.shared + p.at.shared_at;
#pragma unroll 1
        for (u32 at = first; at < p.n_shared / 32; at += 64)
            add({ row_of(p.shared_down, shared, c), row_of(p.shared_down, shared, c + 1) }, at, n_routed + at,
                sums);
    }
};

template <u32 F, u32 G>
static __device__ __forceinline__ void down_columns(const struct block_weights<F, G> &w,
                                                    const struct row_int8 &h)
{
    const struct moe_params &p = w.p;
    u32 lane = threadIdx.x & 31, warp = threadIdx.x / 32, half = warp % 2,
        column = w.columns.first + threadIdx.x;
    bool has_column = threadIdx.x < w.columns.n;
    struct down_part<F, G> part = {
        w, h, lane + 32 * half
    };
    f32 in = p.adds && has_column ? p.in[column] : 0;

#pragma unroll 1
    for (u32 c = warp / 2 * 2; c < w.columns.n; c += WARPS) {
        f32 sums[2] = {};
        if (p.down_bias && half == 0 && lane < p.route.n_slots) {
            const f32 *bias = p.down_bias + (u64)w.s.ids[lane] * p.route.n_cols + w.columns.first + c;
            sums[0] = w.s.weights[lane] * bias[0];
            sums[1] = w.s.weights[lane] * bias[1];
        }
        part.multiply(c, sums);
        f32 sum = sum_both(sums[0], sums[1]);
        if (lane % 16 == 0)
            w.s.columns[half][c + lane / 16] = sum;
    }
    __syncthreads();
    if (has_column)
        p.out[column] = in + (w.s.columns[0][threadIdx.x] + w.s.columns[1][threadIdx.x]);
}

static __device__ __forceinline__ void make_zero(const struct moe_params &p)
{
#pragma unroll 1
    for (u32 i = threadIdx.x; i < p.n_logits; i += MOE_THREADS)
        p.logits[i * MOE_LOGIT_WORDS] = 0;
#pragma unroll 1
    for (u32 i = threadIdx.x; i < p.n_hidden / 8; i += MOE_THREADS)
        ((uint4 *)p.hidden)[i] = make_uint4(0, 0, 0, 0);
    if (threadIdx.x == 0)
        *p.arrived = 0;
}

template <u32 F, u32 G> static __device__ __forceinline__ void moe_row(const struct moe_params &p)
{
    extern __shared__ __align__(128) u8 moe_shared[];
    struct moe_state &s = *(struct moe_state *)(moe_shared + p.at.state_at);
    struct block_weights<F, G> w(p, s, moe_shared);
    struct row_int8 x = row_int8_at(moe_shared + p.at.row_at, p.route.n_cols / 32);
    struct row_int8 h = row_int8_at(moe_shared + p.at.hidden_at, p.n_hidden / 32);
    struct router_part router;
    struct hidden_number number;
    u32 warp = threadIdx.x / 32, n_rows = p.step->n_rows, arrived = 0;

    router.begin(p);
    if (threadIdx.x < MOE_MOST_ROUNDS)
        s.left[threadIdx.x] = 0;
    if (warp == WARPS - 1 && elect_one())
        w.begin(n_rows);
    wait_before_next();
    if (n_rows == 0)
        return;
    router.multiply(p, s);
    __syncthreads();
    if (warp < MOST_OWN && (threadIdx.x & 31) == 0)
        publish_logits(p, s, router.n_own);
    router.pack(x); // while the logits travel
    bool bad = take_logits(p, s);
    if (warp < 4)
        choose_and_request(w, bad);
    __syncthreads();
    number.begin(w);
    gate_and_up(w, x);
    __syncthreads();
    let_next_begin(); // not earlier: its weights would come before what all blocks wait for
    publish_hidden(p, s, number);
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

// 64 registers: with more the launches before and after find none beside it on an SM.
#define MOE_ROW_OF(name, F, G)                                      \
    extern "C" __global__ void __launch_bounds__(MOE_THREADS, 2)    \
        moe_row_##name(const __grid_constant__ struct moe_params p) \
    {                                                               \
        moe_row<F, G>(p);                                           \
    }
#define MOE_ROW(NAME, name, with) MOE_ROW_OF(name, QUANT_##NAME, QUANT_##NAME)
QUANT_BLOCK_FORMATS(MOE_ROW, )
MOE_ROW_OF(q4_k_q6_k, QUANT_Q4_K, QUANT_Q6_K)
MOE_ROW_OF(q5_k_q6_k, QUANT_Q5_K, QUANT_Q6_K)
#endif
