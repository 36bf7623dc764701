// moe_few.cu - a layer's experts for 2 to 16 rows in three launches: the router, gate and up, down with the
// sum and the residual.
//
// Bound by reading the chosen experts' weights, each once for up to four rows that chose it.
//
//   moe_few_route   a block per one or two logits: their products with all rows, which are not normalised
//   yet;
//                   block r also packs row r as int8
//   moe_few_up      persistent, one block an SM. Every block chooses for all rows, a warp a row, and groups
//   the
//                   entries by expert. A task is a group and 32 hidden numbers, in two rounds of 16 pairs
//                   of gate and up, a pair a warp; tasks are dealt to blocks in turn
//   moe_few_down    a block has 8 to 32 columns of all groups; teams of four or eight warps take groups in
//                   turn, a warp four columns at a time. What groups add is summed slot by slot at the end
//
// Pipeline: rounds and groups come by bulk copies into stages of shared memory; the last warp to leave a
// stage requests what comes next into it.
// The order of a sum depends on columns and formats alone: by lanes over blocks of 32, then by slots; so
// a row has the same bits in any company.
#include "ops/moe/moe.cuh"
#include "ops/moe/moe_few.h"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900 // bulk copies

enum { WARPS = MOE_THREADS / 32, MOST_OWN = 2, TOGETHER = MOE_FEW_TOGETHER, HIDDEN_ROOMS = 4 };

// --- the router ---

static __device__ __forceinline__ f32 dot_eight(const struct float8 &a, const struct float8 &b, f32 sum)
{
    sum = fmaf(a.a.x, b.a.x, fmaf(a.a.y, b.a.y, fmaf(a.a.z, b.a.z, fmaf(a.a.w, b.a.w, sum))));
    return fmaf(a.b.x, b.b.x, fmaf(a.b.y, b.b.y, fmaf(a.b.z, b.b.z, fmaf(a.b.w, b.b.w, sum))));
}

struct route_sums { // of a warp's columns
    f32 squares[MOE_FEW_ROWS][MOE_FEW_ROUTE_THREADS / 32];
    f32 dots[MOST_OWN][MOE_FEW_ROWS][MOE_FEW_ROUTE_THREADS / 32];
    f32 factors[MOE_FEW_ROWS];
};

static __device__ __forceinline__ f32 sum_of_eight(const f32 (&v)[MOE_FEW_ROUTE_THREADS / 32])
{
    return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
}

// Two eights of columns a thread: the second one may be none.
struct few_router {
    struct float8 rows[MOST_OWN][2]; // of the router, times the norm
    u32 n, n_own;

    __device__ __forceinline__ bool has(u32 k) const
    {
        return threadIdx.x + k * MOE_FEW_ROUTE_THREADS < n;
    }
    __device__ __forceinline__ void begin(const struct moe_params &p)
    {
        n = p.route.n_cols / 8;
        n_own = blockIdx.x < p.n_logits ? (p.n_logits - blockIdx.x + gridDim.x - 1) / gridDim.x : 0;
#pragma unroll
        for (u32 i = 0; i < MOST_OWN; i++) {
            u32 row = blockIdx.x + i * gridDim.x;
            const f32 *at = row < p.route.n_experts ? p.router + (u64)row * p.route.n_cols : p.shared_gate;
#pragma unroll
            for (u32 k = 0; k < 2; k++) {
                u32 column = threadIdx.x + k * MOE_FEW_ROUTE_THREADS;
                struct float8 zero = {}, w = i < n_own && has(k) ? load_eight(at, column, n) : zero,
                              norm = load_eight(p.norm, column, n);
                rows[i][k] = {
                    make_float4(w.a.x * norm.a.x, w.a.y * norm.a.y, w.a.z * norm.a.z, w.a.w * norm.a.w),
                    make_float4(w.b.x * norm.b.x, w.b.y * norm.b.y, w.b.z * norm.b.z, w.b.w * norm.b.w)
                };
            }
        }
    }
    // Rows [first, first + 4) of the input; missing ones repeat the last.
    __device__ __forceinline__ void multiply(const struct moe_params &p, struct route_sums &s, u32 first,
                                             u32 n_rows) const
    {
        struct float8 x[4][2];
        f32 sums[4][1 + MOST_OWN] = {};

#pragma unroll
        for (u32 r = 0; r < 4; r++)
#pragma unroll
            for (u32 k = 0; k < 2; k++) {
                struct float8 zero = {};
                x[r][k] = has(k) ? load_eight(p.in + (u64)min(first + r, n_rows - 1) * p.route.n_cols,
                                              threadIdx.x + k * MOE_FEW_ROUTE_THREADS, n)
                                 : zero;
            }
#pragma unroll
        for (u32 r = 0; r < 4; r++)
#pragma unroll
            for (u32 k = 0; k < 2; k++) {
                sums[r][0] += squares_of(x[r][k]);
#pragma unroll
                for (u32 i = 0; i < MOST_OWN; i++)
                    sums[r][1 + i] = dot_eight(x[r][k], rows[i][k], sums[r][1 + i]);
            }
#pragma unroll
        for (u32 r = 0; r < 4; r++)
#pragma unroll
            for (u32 i = 0; i <= MOST_OWN; i++) {
                f32 sum = i <= n_own ? warp_sum(sums[r][i]) : 0;
                if ((threadIdx.x & 31) == 0)
                    (i ? s.dots[i ? i - 1 : 0] : s.squares)[first + r][threadIdx.x / 32] = sum;
            }
    }
};

// Row blockIdx.x as the experts read it.
static __device__ __forceinline__ void pack_row(const struct moe_few_params &q, f32 factor)
{
    const struct moe_params &p = q.of;
    u32 n = p.route.n_cols / 8, end = (n + 31) / 32 * 32;
    const f32 *from = p.in + (u64)blockIdx.x * p.route.n_cols, *norm = p.expert_norm ? p.expert_norm : p.norm;
    struct row_int8 to =
        row_int8_at(q.packed + (u64)blockIdx.x * moe_row_bytes(p.route.n_cols), p.route.n_cols / 32);

    factor = p.expert_norm ? factor : factor * p.route.gain;
    for (u32 i = threadIdx.x; i < end; i += MOE_FEW_ROUTE_THREADS) {
        struct float8 v = load_eight(from, i, n), w = load_eight(norm, i, n);
        const f32 numbers[8] = { v.a.x * w.a.x * factor, v.a.y * w.a.y * factor, v.a.z * w.a.z * factor,
                                 v.a.w * w.a.w * factor, v.b.x * w.b.x * factor, v.b.y * w.b.y * factor,
                                 v.b.z * w.b.z * factor, v.b.w * w.b.w * factor };
        quantise_eight(to, i, numbers, i < n);
    }
}

extern "C" __global__ void __launch_bounds__(MOE_FEW_ROUTE_THREADS)
    moe_few_route(const __grid_constant__ struct moe_few_params q)
{
    __shared__ struct route_sums s;
    const struct moe_params &p = q.of;
    struct few_router router;
    u32 n_rows = p.step->n_rows, r = threadIdx.x % MOE_FEW_ROWS, i = threadIdx.x / MOE_FEW_ROWS;

    router.begin(p);
    wait_for_inputs();
    for (u32 first = 0; first < n_rows; first += 4)
        router.multiply(p, s, first, n_rows);
    __syncthreads();
    if (r < n_rows && i <= router.n_own && i <= MOST_OWN) {
        f32 factor = rsqrtf(sum_of_eight(s.squares[r]) * p.inverse_cols + p.route.eps);
        if (i == 0) {
            s.factors[r] = factor;
        } else {
            u32 row = blockIdx.x + (i - 1) * gridDim.x;
            f32 bias = p.router_bias && row < p.route.n_experts ? p.router_bias[row] : 0;
            q.logits[r * p.n_logits + row] =
                fmaf(sum_of_eight(s.dots[i - 1][r]), factor * p.route.gain, bias);
        }
    }
    __syncthreads();
    if (blockIdx.x < n_rows)
        pack_row(q, s.factors[blockIdx.x]);
}

// --- groups of entries ---

struct few_group { // an expert, or the shared one: n_experts; and up to four rows that chose it
    u16 expert, n;
    u16 row[TOGETHER], entry[TOGETHER];
};

struct few_state {
    u64 full[MOE_FEW_DOWN_STAGES + 1]; // barriers: of each stage, and of the rows
    u32 left[MOE_FEW_DOWN_STAGES];     // warps that have left a stage
    u32 before[WARPS];                 // groups that a warp's experts have
    u32 n_groups;
    u32 mask[MOE_MOST_EXPERTS]; // rows that chose an expert
    u16 ids[MOE_FEW_ENTRIES];
    f32 weights[MOE_FEW_ENTRIES + MOE_FEW_ROWS]; // [rows, n_slots + 1]
    struct few_group groups[MOE_FEW_GROUPS];
    f32 hidden[HIDDEN_ROOMS][TOGETHER][32]; // of tasks, before they are packed
};
static_assert(sizeof(struct few_state) <= MOE_FEW_STATE, "");

// Before the wait.
static __device__ __forceinline__ void begin_state(const struct moe_few_params &q, struct few_state &s)
{
    for (u32 e = threadIdx.x; e < MOE_MOST_EXPERTS; e += MOE_THREADS)
        s.mask[e] = 0;
    if (threadIdx.x < MOE_FEW_DOWN_STAGES)
        s.left[threadIdx.x] = 0;
    if (threadIdx.x != 0)
        return;
    for (u32 i = 0; i < q.n_stages; i++)
        barrier_begin(shared_address(&s.full[i]), 1);
    barrier_begin(shared_address(&s.full[MOE_FEW_DOWN_STAGES]), 1);
    show_barriers();
}

// A lane has slot `lane` of a row.
static __device__ __forceinline__ void note_slot(struct few_state &s, u32 row, u32 n_slots, u32 id,
                                                 f32 weight)
{
    u32 lane = threadIdx.x & 31;

    if (lane >= n_slots)
        return;
    s.ids[row * n_slots + lane] = (u16)id;
    s.weights[row * (n_slots + 1) + lane] = weight;
    atomicOr(&s.mask[id], 1u << row);
}

// A warp chooses for its row. N: experts of a lane. The first block writes down the choice.
template <u32 N>
static __device__ __forceinline__ void choose_row(const struct moe_few_params &q, struct few_state &s,
                                                  u32 row)
{
    const struct moe_params &p = q.of;
    u32 lane = threadIdx.x & 31, n = p.route.n_slots, keys[N];
    const f32 *logits = q.logits + row * p.n_logits;
    f32 own[N], top = -INFINITY, sum = 0;
    bool finite = !p.shared_gate || isfinite(logits[p.route.n_experts]);

#pragma unroll
    for (u32 i = 0; i < N; i++) {
        u32 e = i * 32 + lane;
        own[i] = e < p.route.n_experts ? logits[e] : -INFINITY;
        finite = finite && (e >= p.route.n_experts || isfinite(own[i]));
        top = fmaxf(top, own[i]);
        f32 key = p.route.rule.scores == ROUTE_SIGMOID
                      ? sigmoid(own[i]) + (p.select_bias && e < p.route.n_experts ? p.select_bias[e] : 0)
                      : own[i];
        keys[i] = e < p.route.n_experts ? order_key(key) : 0;
    }
    top = warp_max(top);
#pragma unroll
    for (u32 i = 0; i < N; i++)
        sum += expf(own[i] - top);
    sum = warp_sum(sum);
    bool bad = !__all_sync(~0u, finite);
    u32 id = bad ? lane : choose(keys, n);
    f32 weight = slot_weight(p, id, logits[lane < n ? id : 0], top, sum), shared = shared_weight(p, logits);
    weight = bad ? NOT_A_NUMBER : weight;
    shared = bad ? NOT_A_NUMBER : shared;
    note_slot(s, row, n, id, weight);
    if (blockIdx.x > 0)
        return;
    if (lane < n) {
        q.ids[row * n + lane] = id;
        p.ids[row * n + lane] = (f32)id;
        q.weights[row * (n + 1) + lane] = weight;
    }
    if (lane == 0)
        q.weights[row * (n + 1) + n] = shared;
}

// All threads, when the slots are noted: the shared expert's groups, then those of the experts in order.
static __device__ __forceinline__ void find_groups(const struct moe_params &p, struct few_state &s,
                                                   u32 n_rows)
{
    u32 lane = threadIdx.x & 31, warp = threadIdx.x / 32, expert = threadIdx.x - 1, mask = 0;

    if (threadIdx.x == 0) {
        expert = p.route.n_experts;
        mask = p.n_shared ? (1u << n_rows) - 1 : 0;
    } else if (expert < p.route.n_experts) {
        mask = s.mask[expert];
    }
    u32 n = (__popc(mask) + TOGETHER - 1) / TOGETHER, sum = n;
#pragma unroll
    for (u32 o = 1; o < 32; o *= 2) {
        u32 other = __shfl_up_sync(~0u, sum, o);
        sum += lane >= o ? other : 0;
    }
    if (lane == 31)
        s.before[warp] = sum;
    __syncthreads();
    u32 at = sum - n, all = 0;
    for (u32 i = 0; i < WARPS; i++) {
        at += i < warp ? s.before[i] : 0;
        all += s.before[i];
    }
    if (threadIdx.x == 0)
        s.n_groups = all;
    for (; mask; at++) {
        struct few_group &g = s.groups[at];
        g.expert = (u16)expert;
        g.n = (u16)min(__popc(mask), TOGETHER);
        for (u32 i = 0; i < g.n; i++, mask &= mask - 1) {
            u32 row = __ffs(mask) - 1, slot = 0;
            while (expert < p.route.n_experts && s.ids[row * p.route.n_slots + slot] != expert)
                slot++;
            g.row[i] = (u16)row;
            g.entry[i] = (u16)(expert < p.route.n_experts ? row * p.route.n_slots + slot : row);
        }
    }
    __syncthreads();
}

// The last of n warps that leave a stage: true for all of its lanes.
static __device__ __forceinline__ bool is_last(struct few_state &s, u32 stage, u32 n)
{
    u32 left = 0;

    __syncwarp();
    if ((threadIdx.x & 31) == 0) {
        __threadfence_block();
        left = atomicAdd(&s.left[stage], 1);
        __threadfence_block();
    }
    bool last = __shfl_sync(~0u, left, 0) % n == n - 1;
    if (last)
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    return last;
}

// --- gate and up ---

struct few_task {
    u32 group, part; // hidden numbers from 32 part on
};

template <u32 F> struct few_up {
    const struct moe_few_params &q;
    struct few_state &s;
    u8 *shared;
    u32 shared_groups, shared_tasks, n_rounds;

    __device__ __forceinline__ few_up(const struct moe_few_params &q, struct few_state &s, u8 *shared,
                                      u32 n_rows)
        : q(q), s(s), shared(shared)
    {
        u32 parts = q.of.n_ffn / 32;
        shared_groups = q.of.n_shared ? (n_rows + TOGETHER - 1) / TOGETHER : 0;
        shared_tasks = shared_groups * (q.of.n_shared / 32);
        u32 n_tasks = shared_tasks + (s.n_groups - shared_groups) * parts;
        n_rounds = blockIdx.x < n_tasks ? 2 * ((n_tasks - blockIdx.x + gridDim.x - 1) / gridDim.x) : 0;
    }
    // Groups of the shared expert with the same weights lie side by side.
    __device__ __forceinline__ struct few_task task_of(u32 round) const
    {
        u32 task = blockIdx.x + round / 2 * gridDim.x;
        if (task < shared_tasks)
            return { task % shared_groups, task / shared_groups };
        u32 parts = q.of.n_ffn / 32, group = (task - shared_tasks) / parts;
        return { shared_groups + group, task - shared_tasks - group * parts };
    }
    __device__ __forceinline__ u32 full(u32 round) const
    {
        return shared_address(&s.full[round % q.n_stages]);
    }
    __device__ __forceinline__ u8 *stage(u32 round) const
    {
        return shared + round % q.n_stages * q.stage_bytes;
    }
    // A warp.
    __device__ __forceinline__ void request(u32 round) const
    {
        const struct moe_params &p = q.of;
        u32 lane = threadIdx.x & 31;
        struct few_task t = task_of(round);
        u32 expert = s.groups[t.group].expert, first = t.part * 32 + round % 2 * MOE_ROUND_PAIRS;
        bool of_shared = expert == p.route.n_experts;
        const struct weight_planes &w = of_shared  ? lane & 1 ? p.w_shared_up : p.w_shared_gate
                                        : lane & 1 ? p.w_up
                                                   : p.w_gate;
        first += of_shared ? 0 : expert * p.n_ffn;
        if (lane == 0)
            expect_bytes(full(round), 2 * MOE_ROUND_PAIRS * p.up.all);
        __syncwarp();
        u32 to = shared_address(stage(round)) + (lane & 1) * (q.stage_bytes / 2);
        if (lane < 2)
            copy_plane(p.up, w.quants, 0, first, MOE_ROUND_PAIRS, to, 0, full(round));
        else if (lane < 4)
            copy_rest<F>(p.up, w, first, MOE_ROUND_PAIRS, to, 0, full(round));
    }
    // A warp: its pair with the group's rows.
    __device__ __forceinline__ void multiply(u32 round, const struct few_group &g,
                                             f32 (&sums)[TOGETHER][2]) const
    {
        const struct moe_params &p = q.of;
        u32 warp = threadIdx.x / 32, n = g.n, n_blocks = p.route.n_cols / 32;
        const u8 *at = stage(round);
        const struct plane_pointers gate = row_of(p.up, at, warp),
                                    up = row_of(p.up, at + q.stage_bytes / 2, warp);

        for (u32 block = threadIdx.x & 31; block < n_blocks; block += 32) {
            struct packed<F> first = block_at<F, false>(gate, block), second = block_at<F, false>(up, block);
#pragma unroll
            for (u32 r = 0; r < TOGETHER; r++) {
                if (r >= n)
                    break;
                struct facing<F> x = face<F>(
                    row_int8_at(shared + q.rows_at + g.row[r] * moe_row_bytes(p.route.n_cols), n_blocks),
                    block);
                sums[r][0] = dot_block<F>(first, x, sums[r][0]);
                sums[r][1] = dot_block<F>(second, x, sums[r][1]);
            }
        }
    }
    __device__ __forceinline__ void round(u32 i) const
    {
        const struct moe_params &p = q.of;
        struct few_task t = task_of(i);
        const struct few_group &g = s.groups[t.group];
        u32 pair = i % 2 * MOE_ROUND_PAIRS + threadIdx.x / 32;
        f32 sums[TOGETHER][2] = {}, bias[2] = {};

        if (p.gate_bias && g.expert < p.route.n_experts) {
            u64 at = (u64)g.expert * p.n_ffn + t.part * 32 + pair;
            bias[0] = p.gate_bias[at];
            bias[1] = p.up_bias[at];
        }
        wait_for_stage(full(i), i / q.n_stages & 1);
        multiply(i, g, sums);
#pragma unroll
        for (u32 r = 0; r < TOGETHER; r++) {
            if (r >= g.n)
                break;
            f32 sum = sum_both(sums[r][0], sums[r][1]), other = __shfl_sync(~0u, sum, 16);
            sum = experts_gated(p.activation, p.limit, sum + bias[0], other + bias[1]);
            if ((threadIdx.x & 31) == 0)
                s.hidden[i / 2 % HIDDEN_ROOMS][r][pair] = sum;
        }
        if (!is_last(s, i % q.n_stages, WARPS))
            return;
        if (i % 2)
            store_hidden(t, g, i / 2 % HIDDEN_ROOMS);
        if (i + q.n_stages < n_rounds)
            request(i + q.n_stages);
    }
    // A warp packs a task's hidden numbers, four lanes a row. Others may be up to n_stages rounds ahead, in
    // rooms of other tasks.
    __device__ __forceinline__ void store_hidden(struct few_task t, const struct few_group &g, u32 room) const
    {
        const struct moe_params &p = q.of;
        u32 row = (threadIdx.x & 31) / 4, part = threadIdx.x % 4;
        bool exists = row < g.n, of_shared = g.expert == p.route.n_experts;
        u32 n = of_shared ? p.n_shared : p.n_ffn;
        u8 *at = (of_shared ? q.shared_hidden : q.hidden) + (u64)g.entry[exists ? row : 0] * moe_row_bytes(n);
        f32 v[8];

#pragma unroll
        for (u32 k = 0; k < 8; k++)
            v[k] = exists ? s.hidden[room][row][part * 8 + k] : 0;
        quantise_eight(row_int8_at(at, n / 32), t.part * 4 + part, v, exists);
    }
};

template <u32 F> static __device__ __forceinline__ void moe_few_up(const struct moe_few_params &q)
{
    extern __shared__ __align__(128) u8 moe_few_shared[];
    struct few_state &s = *(struct few_state *)(moe_few_shared + q.state_at);
    const struct moe_params &p = q.of;
    u32 n_rows = p.step->n_rows, warp = threadIdx.x / 32, rows = shared_address(&s.full[MOE_FEW_DOWN_STAGES]);

    begin_state(q, s);
    wait_for_inputs();
    __syncthreads();
    if (n_rows == 0)
        return;
    if (threadIdx.x == MOE_THREADS - 1) {
        u32 bytes = n_rows * moe_row_bytes(p.route.n_cols);
        expect_bytes(rows, bytes);
        copy_run(shared_address(moe_few_shared) + q.rows_at, q.packed, bytes, rows);
    }
    if (warp < n_rows && p.route.n_experts <= 128)
        choose_row<4>(q, s, warp);
    else if (warp < n_rows)
        choose_row<8>(q, s, warp);
    __syncthreads();
    find_groups(p, s, n_rows);
    struct few_up<F> up(q, s, moe_few_shared, n_rows);
    if (warp < min(q.n_stages, up.n_rounds))
        up.request(warp);
    wait_for_stage(rows, 0);
#pragma unroll 1
    for (u32 i = 0; i < up.n_rounds; i++)
        up.round(i);
}

// --- down ---

// Four sums over a warp: lanes 0, 8, 16 and 24 have one each, in order.
static __device__ __forceinline__ f32 sum_four(const f32 (&sums)[4])
{
    bool upper = threadIdx.x & 16, odd = threadIdx.x & 8;
    f32 first = (upper ? sums[2] : sums[0]) + __shfl_xor_sync(~0u, upper ? sums[0] : sums[2], 16),
        second = (upper ? sums[3] : sums[1]) + __shfl_xor_sync(~0u, upper ? sums[1] : sums[3], 16);
    f32 mine = (odd ? second : first) + __shfl_xor_sync(~0u, odd ? first : second, 8);
#pragma unroll
    for (u32 o = 4; o; o >>= 1)
        mine += __shfl_xor_sync(~0u, mine, o);
    return mine;
}

template <u32 F> struct few_down {
    const struct moe_few_params &q;
    struct few_state &s;
    u8 *shared;
    f32 *parts; // [entries, then the shared expert's][columns]
    struct span columns;

    __device__ __forceinline__ bool of_shared(const struct few_group &g) const
    {
        return g.expert == q.of.route.n_experts;
    }
    __device__ __forceinline__ u32 full(u32 i) const
    {
        return shared_address(&s.full[i % q.n_stages]);
    }
    __device__ __forceinline__ u8 *stage(u32 i) const
    {
        return shared + i % q.n_stages * q.stage_bytes;
    }
    // A warp: the block's columns of group i's expert, and the group's hidden numbers.
    __device__ __forceinline__ void request(u32 i) const
    {
        const struct moe_params &p = q.of;
        const struct few_group &g = s.groups[i];
        u32 lane = threadIdx.x & 31, row_bytes = moe_row_bytes(of_shared(g) ? p.n_shared : p.n_ffn),
            to = shared_address(stage(i)), first = columns.first;
        const struct moe_rows &r = of_shared(g) ? p.shared_down : p.down;
        const struct weight_planes &w = of_shared(g) ? p.w_shared_down : p.w_down;

        first += of_shared(g) ? 0 : g.expert * p.route.n_cols;
        if (lane == 0)
            expect_bytes(full(i), columns.n * r.all + g.n * row_bytes);
        __syncwarp();
        if (lane == 0)
            copy_plane(r, w.quants, 0, first, columns.n, to, 0, full(i));
        else if (lane == 1)
            copy_rest<F>(r, w, first, columns.n, to, 0, full(i));
        else if (lane < 2 + g.n)
            copy_run(to + q.weight_bytes + (lane - 2) * row_bytes,
                     (of_shared(g) ? q.shared_hidden : q.hidden) + (u64)g.entry[lane - 2] * row_bytes,
                     row_bytes, full(i));
    }
    // A warp: four columns from c on, of row r of group i.
    __device__ __forceinline__ void multiply(u32 i, const struct few_group &g, u32 r, u32 c) const
    {
        const struct moe_params &p = q.of;
        u32 n = of_shared(g) ? p.n_shared : p.n_ffn, lane = threadIdx.x & 31;
        const struct moe_rows &rows = of_shared(g) ? p.shared_down : p.down;
        struct row_int8 x = row_int8_at(stage(i) + q.weight_bytes + r * moe_row_bytes(n), n / 32);
        f32 sums[4] = {};

        for (u32 block = lane; block < n / 32; block += 32) {
            struct facing<F> f = face<F>(x, block);
#pragma unroll
            for (u32 k = 0; k < 4; k++)
                sums[k] = dot_block<F>(block_at<F, false>(row_of(rows, stage(i), c + k), block), f, sums[k]);
        }
        f32 sum = sum_four(sums);
        u32 entry = g.entry[r] + (of_shared(g) ? p.step->n_rows * p.route.n_slots : 0);
        if (lane % 8 == 0)
            parts[entry * q.columns + c + lane / 8] = sum;
    }
    __device__ __forceinline__ void run() const
    {
        u32 warp = threadIdx.x / 32, members = WARPS / q.n_teams;

#pragma unroll 1
        for (u32 i = warp / members; i < s.n_groups; i += q.n_teams) {
            const struct few_group &g = s.groups[i];
            wait_for_stage(full(i), i / q.n_stages & 1);
            for (u32 r = 0; r < g.n; r++)
                for (u32 c = warp % members * 4; c < columns.n; c += 4 * members)
                    multiply(i, g, r, c);
            if (is_last(s, i % q.n_stages, members) && i + q.n_stages < s.n_groups)
                request(i + q.n_stages);
        }
    }
    // A thread, a column of a row: the slots in their order, then the shared expert, then the input.
    __device__ __forceinline__ void add_up(u32 row, u32 c) const
    {
        const struct moe_params &p = q.of;
        u32 n = p.route.n_slots, column = columns.first + c;
        const f32 *weights = s.weights + row * (n + 1);
        f32 sum = 0;

        for (u32 j = 0; j < n; j++) {
            f32 bias = p.down_bias ? p.down_bias[(u64)s.ids[row * n + j] * p.route.n_cols + column] : 0;
            sum = fmaf(weights[j], parts[(row * n + j) * q.columns + c] + bias, sum);
        }
        if (p.n_shared)
            sum = fmaf(weights[n], parts[(p.step->n_rows * n + row) * q.columns + c], sum);
        u64 at = (u64)row * p.route.n_cols + column;
        p.out[at] = (p.adds ? p.in[at] : 0) + sum;
    }
};

template <u32 F> static __device__ __forceinline__ void moe_few_down(const struct moe_few_params &q)
{
    extern __shared__ __align__(128) u8 moe_few_shared[];
    struct few_state &s = *(struct few_state *)(moe_few_shared + q.state_at);
    const struct moe_params &p = q.of;
    u32 n_rows = p.step->n_rows, n = p.route.n_slots, warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    struct few_down<F> down = {
        q, s, moe_few_shared, (f32 *)(moe_few_shared + q.rows_at), groups_of(p.column_groups, p.more_columns)
    };

    begin_state(q, s);
    wait_for_inputs();
    __syncthreads();
    if (n_rows == 0)
        return;
    if (warp < n_rows) {
        u32 id = lane < n ? q.ids[warp * n + lane] : 0;
        note_slot(s, warp, n, id, lane < n ? q.weights[warp * (n + 1) + lane] : 0);
        if (lane == 0)
            s.weights[warp * (n + 1) + n] = q.weights[warp * (n + 1) + n];
    }
    __syncthreads();
    find_groups(p, s, n_rows);
    if (warp < min(q.n_stages, s.n_groups))
        down.request(warp);
    down.run();
    __syncthreads();
    for (u32 i = threadIdx.x; i < n_rows * down.columns.n; i += MOE_THREADS)
        down.add_up(i / down.columns.n, i % down.columns.n);
}

#define MOE_FEW(NAME, name, with)                                            \
    extern "C" __global__ void __launch_bounds__(MOE_THREADS, 1)             \
        moe_few_up_##name(const __grid_constant__ struct moe_few_params q)   \
    {                                                                        \
        moe_few_up<QUANT_##NAME>(q);                                         \
    }                                                                        \
    extern "C" __global__ void __launch_bounds__(MOE_THREADS, 1)             \
        moe_few_down_##name(const __grid_constant__ struct moe_few_params q) \
    {                                                                        \
        moe_few_down<QUANT_##NAME>(q);                                       \
    }
QUANT_BLOCK_FORMATS(MOE_FEW, )
#endif
