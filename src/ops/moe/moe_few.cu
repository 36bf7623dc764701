// moe_few.cu - a layer's experts for 2 to 16 rows in three launches: the router, gate and up, down with the
// sum and the residual.
//
// Bound by reading the chosen experts' weights, each once for up to four rows that chose it.
//
//   moe_few_route   a block per one or two logits: their products with all rows, which are not normalised
//                   yet; and a block per row packs it as int8
//   moe_few_up      persistent, one block an SM. Every block chooses for all rows, a warp a row, and groups
//                   the entries by expert. A task is a group and 32 hidden numbers, in two rounds of 16 pairs
//                   of gate and up, a pair a warp; tasks are dealt to blocks in turn
//   moe_few_down    chooses and groups in the same way, and requests the first weights, before its wait. A
//                   block has 8 to 32 columns of all groups. Each stage has a team of warps, which take
//                   groups in turn, a warp four columns at a time. What groups add is summed slot by slot
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
};

static __device__ __forceinline__ f32 sum_of_eight(const f32 (&v)[MOE_FEW_ROUTE_THREADS / 32])
{
    return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
}

static __device__ __forceinline__ f32 factor_of(const struct moe_params &p,
                                                const f32 (&squares)[MOE_FEW_ROUTE_THREADS / 32])
{
    return rsqrtf(sum_of_eight(squares) * p.inverse_cols + p.route.eps);
}

// Four sums over a warp: lanes 0, 8, 16 and 24 have one each, in order, added in the same order.
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

// Two eights of columns a thread: the second one may be none.
struct few_router {
    struct float8 rows[MOST_OWN][2]; // of the router, times the norm
    u32 n, n_own, n_routers;

    __device__ __forceinline__ bool has(u32 k) const
    {
        return threadIdx.x + k * MOE_FEW_ROUTE_THREADS < n;
    }
    __device__ __forceinline__ void begin(const struct moe_params &p, u32 n_blocks)
    {
        n = p.route.n_cols / 8;
        n_routers = n_blocks;
        n_own = (p.n_logits - blockIdx.x + n_routers - 1) / n_routers;
#pragma unroll
        for (u32 i = 0; i < MOST_OWN; i++) {
            u32 row = blockIdx.x + i * n_routers;
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
        f32 sums[1 + MOST_OWN][4] = {};

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
        for (u32 i = 0; i <= MOST_OWN; i++) {
            if (i > n_own)
                break;
#pragma unroll
            for (u32 r = 0; r < 4; r++)
#pragma unroll
                for (u32 k = 0; k < 2; k++)
                    sums[i][r] = i ? dot_eight(x[r][k], rows[i ? i - 1 : 0][k], sums[i][r])
                                   : sums[i][r] + squares_of(x[r][k]);
            f32 sum = sum_four(sums[i]);
            u32 row = first + (threadIdx.x & 31) / 8;
            if (threadIdx.x % 8 == 0)
                (i ? s.dots[i ? i - 1 : 0] : s.squares)[row][threadIdx.x / 32] = sum;
        }
    }
};

// A block: a row as the experts read it. Two eights a thread; the second one may be none.
static __device__ __forceinline__ void pack_row(const struct moe_few_params &q, u32 row, u32 n_rows,
                                                f32 (&squares)[MOE_FEW_ROUTE_THREADS / 32])
{
    const struct moe_params &p = q.of;
    u32 n = p.route.n_cols / 8, end = (n + 31) / 32 * 32;
    const f32 *from = p.in + (u64)row * p.route.n_cols;
    struct row_int8 to =
        row_int8_at(q.packed + (u64)row * moe_row_bytes(p.route.n_cols), p.route.n_cols / 32);
    struct float8 norm[2], x[2];
    f32 sum = 0;

#pragma unroll
    for (u32 k = 0; k < 2; k++)
        norm[k] =
            load_eight(p.expert_norm ? p.expert_norm : p.norm, threadIdx.x + k * MOE_FEW_ROUTE_THREADS, n);
    wait_for_inputs();
    if (row >= n_rows)
        return;
#pragma unroll
    for (u32 k = 0; k < 2; k++) {
        u32 i = threadIdx.x + k * MOE_FEW_ROUTE_THREADS;
        x[k] = load_eight(from, i, n);
        sum += i < n ? squares_of(x[k]) : 0;
    }
    sum = warp_sum(sum);
    if ((threadIdx.x & 31) == 0)
        squares[threadIdx.x / 32] = sum;
    __syncthreads();
    f32 factor = factor_of(p, squares) * (p.expert_norm ? 1 : p.route.gain);
#pragma unroll
    for (u32 k = 0; k < 2; k++) {
        u32 i = threadIdx.x + k * MOE_FEW_ROUTE_THREADS;
        struct float8 v = x[k], w = norm[k];
        const f32 numbers[8] = { v.a.x * w.a.x * factor, v.a.y * w.a.y * factor, v.a.z * w.a.z * factor,
                                 v.a.w * w.a.w * factor, v.b.x * w.b.x * factor, v.b.y * w.b.y * factor,
                                 v.b.z * w.b.z * factor, v.b.w * w.b.w * factor };
        if (i < end)
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

    if (blockIdx.x >= q.n_routers) {
        pack_row(q, blockIdx.x - q.n_routers, n_rows, s.squares[0]);
        return;
    }
    router.begin(p, q.n_routers);
    wait_for_inputs();
    for (u32 first = 0; first < n_rows; first += 4)
        router.multiply(p, s, first, n_rows);
    __syncthreads();
    if (r < n_rows && i < router.n_own) {
        u32 row = blockIdx.x + i * q.n_routers;
        f32 bias = p.router_bias && row < p.route.n_experts ? p.router_bias[row] : 0;
        q.logits[r * p.n_logits + row] =
            fmaf(sum_of_eight(s.dots[i][r]), factor_of(p, s.squares[r]) * p.route.gain, bias);
    }
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

// A warp chooses for its row. N: experts of a lane. weighs: finds the slots' weights, too, and the first
// block writes down the choice.
template <u32 N>
static __device__ __forceinline__ void choose_row(const struct moe_few_params &q, struct few_state &s,
                                                  u32 row, bool weighs)
{
    const struct moe_params &p = q.of;
    u32 lane = threadIdx.x & 31, n = p.route.n_slots, keys[N];
    const f32 *logits = q.logits + row * p.n_logits;
    f32 own[N], top = -INFINITY, sum = 0, gate = p.shared_gate ? __ldcg(logits + p.route.n_experts) : 0;
    bool finite = isfinite(gate);

#pragma unroll
    for (u32 i = 0; i < N; i++) {
        u32 e = i * 32 + lane;
        own[i] = e < p.route.n_experts ? __ldcg(logits + e) : -INFINITY; // perhaps before a wait: not by L1
        finite = finite && (e >= p.route.n_experts || isfinite(own[i]));
        f32 key = p.route.rule.scores == ROUTE_SIGMOID
                      ? sigmoid(own[i]) + (p.select_bias && e < p.route.n_experts ? p.select_bias[e] : 0)
                      : own[i];
        keys[i] = e < p.route.n_experts ? order_key(key) : 0;
    }
    bool bad = !__all_sync(~0u, finite);
    u32 id = bad ? lane : choose(keys, n);
    if (lane < n) {
        s.ids[row * n + lane] = (u16)id;
        atomicOr(&s.mask[id], 1u << row);
    }
    if (!weighs)
        return;
#pragma unroll
    for (u32 i = 0; i < N; i++)
        top = fmaxf(top, own[i]);
    top = warp_max(top);
#pragma unroll
    for (u32 i = 0; i < N; i++)
        sum += expf(own[i] - top);
    sum = warp_sum(sum);
    f32 weight = slot_weight(p, id, __ldcg(logits + (lane < n ? id : 0)), top, sum),
        shared = p.shared_gate ? sigmoid(gate) : 1;
    if (lane < n)
        s.weights[row * (n + 1) + lane] = bad ? NOT_A_NUMBER : weight;
    if (lane == 0)
        s.weights[row * (n + 1) + n] = bad ? NOT_A_NUMBER : shared;
    if (blockIdx.x == 0 && lane < n)
        p.ids[row * n + lane] = (f32)id;
}
static __device__ __forceinline__ void choose_rows(const struct moe_few_params &q, struct few_state &s,
                                                   u32 n_rows, bool weighs)
{
    u32 row = threadIdx.x / 32;

    if (row < n_rows && q.of.route.n_experts <= 128)
        choose_row<4>(q, s, row, weighs);
    else if (row < n_rows)
        choose_row<8>(q, s, row, weighs);
    __syncthreads();
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

// The last of n warps that leave a stage for the turn-th time: true for all of its lanes.
static __device__ __forceinline__ bool is_last(struct few_state &s, u32 stage, u32 n, u32 turn)
{
    u32 left = turn * n;

    __syncwarp();
    if (n > 1 && (threadIdx.x & 31) == 0)
        asm volatile("atom.acq_rel.cta.shared::cta.add.u32 %0, [%1], 1;"
                     : "=r"(left)
                     : "r"(shared_address(&s.left[stage]))
                     : "memory");
    bool last = n == 1 || __shfl_sync(~0u, left, 0) == turn * n + n - 1;
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
    // A warp: a round, to a stage.
    __device__ __forceinline__ void request(u32 round, u32 stage) const
    {
        const struct moe_params &p = q.of;
        u32 lane = threadIdx.x & 31, full = shared_address(&s.full[stage]);
        struct few_task t = task_of(round);
        u32 expert = s.groups[t.group].expert, first = t.part * 32 + round % 2 * MOE_ROUND_PAIRS;
        bool of_shared = expert == p.route.n_experts;
        const struct weight_planes &w = of_shared  ? lane & 1 ? p.w_shared_up : p.w_shared_gate
                                        : lane & 1 ? p.w_up
                                                   : p.w_gate;
        first += of_shared ? 0 : expert * p.n_ffn;
        if (lane == 0)
            expect_bytes(full, 2 * MOE_ROUND_PAIRS * p.up.all);
        __syncwarp();
        u32 to = shared_address(shared) + stage * q.stage_bytes + (lane & 1) * (q.stage_bytes / 2);
        if (lane < 2)
            copy_plane(p.up, w.quants, 0, first, MOE_ROUND_PAIRS, to, 0, full);
        else if (lane < 4)
            copy_rest<F>(p.up, w, first, MOE_ROUND_PAIRS, to, 0, full);
    }
    // A warp: its pair with the group's rows.
    __device__ __forceinline__ void multiply(const u8 *at, const struct few_group &g,
                                             f32 (&sums)[TOGETHER][2]) const
    {
        const struct moe_params &p = q.of;
        u32 warp = threadIdx.x / 32, n = g.n, n_blocks = p.route.n_cols / 32;
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
    // turn: of this stage.
    __device__ __forceinline__ void round(u32 i, u32 stage, u32 turn) const
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
        wait_for_stage(shared_address(&s.full[stage]), turn & 1);
        multiply(shared + stage * q.stage_bytes, g, sums);
#pragma unroll
        for (u32 r = 0; r < TOGETHER; r++) {
            if (r >= g.n)
                break;
            f32 sum = sum_both(sums[r][0], sums[r][1]), other = __shfl_sync(~0u, sum, 16);
            sum = experts_gated(p.activation, p.limit, sum + bias[0], other + bias[1]);
            if ((threadIdx.x & 31) == 0)
                s.hidden[i / 2 % HIDDEN_ROOMS][r][pair] = sum;
        }
        if (!is_last(s, stage, WARPS, turn))
            return;
        if (i + q.n_stages < n_rounds)
            request(i + q.n_stages, stage);
        if (i % 2)
            store_hidden(t, g, i / 2 % HIDDEN_ROOMS);
    }
    __device__ __forceinline__ void run() const
    {
        u32 stage = 0, turn = 0;

#pragma unroll 1
        for (u32 i = 0; i < n_rounds; i++) {
            round(i, stage, turn);
            stage++;
            turn += stage == q.n_stages;
            stage = stage == q.n_stages ? 0 : stage;
        }
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
    wait_before_next();
    let_next_begin(); // now: moe_few_down reads the logits before its wait
    if (n_rows == 0)
        return;
    __syncthreads();
    if (threadIdx.x == MOE_THREADS - 1) {
        u32 bytes = n_rows * moe_row_bytes(p.route.n_cols);
        expect_bytes(rows, bytes);
        copy_run(shared_address(moe_few_shared) + q.rows_at, q.packed, bytes, rows);
    }
    choose_rows(q, s, n_rows, false);
    find_groups(p, s, n_rows);
    struct few_up<F> up(q, s, moe_few_shared, n_rows);
    if (warp < min(q.n_stages, up.n_rounds))
        up.request(warp, warp);
    wait_for_stage(rows, 0);
    up.run();
}

// --- down ---

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
    __device__ __forceinline__ u32 row_bytes(const struct few_group &g) const
    {
        return moe_row_bytes(of_shared(g) ? q.of.n_shared : q.of.n_ffn);
    }
    // A warp: the block's columns of a group's expert, to a stage.
    __device__ __forceinline__ void request(const struct few_group &g, u32 stage) const
    {
        const struct moe_params &p = q.of;
        u32 lane = threadIdx.x & 31, to = shared_address(shared) + stage * q.stage_bytes,
            full = shared_address(&s.full[stage]), first = columns.first;
        const struct moe_rows &r = of_shared(g) ? p.shared_down : p.down;
        const struct weight_planes &w = of_shared(g) ? p.w_shared_down : p.w_down;

        first += of_shared(g) ? 0 : g.expert * p.route.n_cols;
        if (lane == 0)
            expect_bytes(full, columns.n * r.all + g.n * row_bytes(g));
        __syncwarp();
        if (lane == 0)
            copy_plane(r, w.quants, 0, first, columns.n, to, 0, full);
        else if (lane == 1)
            copy_rest<F>(r, w, first, columns.n, to, 0, full);
    }
    // A warp: the group's hidden numbers, to the same stage.
    __device__ __forceinline__ void request_hidden(const struct few_group &g, u32 stage) const
    {
        u32 lane = threadIdx.x & 31, bytes = row_bytes(g),
            to = shared_address(shared) + stage * q.stage_bytes + q.weight_bytes;

        if (lane < g.n)
            copy_run(to + lane * bytes,
                     (of_shared(g) ? q.shared_hidden : q.hidden) + (u64)g.entry[lane] * bytes, bytes,
                     shared_address(&s.full[stage]));
    }
    // A warp: four columns from c on, of a row of a group.
    __device__ __forceinline__ void multiply(const u8 *stage, const struct few_group &g, u32 r, u32 c,
                                             u32 entry) const
    {
        const struct moe_params &p = q.of;
        u32 n = of_shared(g) ? p.n_shared : p.n_ffn, lane = threadIdx.x & 31;
        const struct moe_rows &rows = of_shared(g) ? p.shared_down : p.down;
        struct row_int8 x = row_int8_at((u8 *)stage + q.weight_bytes + r * moe_row_bytes(n), n / 32);
        f32 sums[4] = {};

        for (u32 block = lane; block < n / 32; block += 32) {
            struct facing<F> f = face<F>(x, block);
#pragma unroll
            for (u32 k = 0; k < 4; k++)
                sums[k] = dot_block<F>(block_at<F, false>(row_of(rows, stage, c + k), block), f, sums[k]);
        }
        f32 sum = sum_four(sums);
        if (lane % 8 == 0)
            parts[entry * q.columns + c + lane / 8] = sum;
    }
    // A team of warps has a stage, and of the groups each n_stages-th. The last to leave it requests the
    // next.
    __device__ __forceinline__ void run(u32 n_rows) const
    {
        u32 warp = threadIdx.x / 32, team = warp / q.team_warps, member = warp - team * q.team_warps,
            turn = 0;
        u32 full = shared_address(&s.full[team]);
        const u8 *stage = shared + team * q.stage_bytes;

        if (team >= q.n_stages)
            return;
#pragma unroll 1
        for (u32 i = team; i < s.n_groups; i += q.n_stages, turn++) {
            const struct few_group &g = s.groups[i];
            u32 behind = of_shared(g) ? n_rows * q.of.route.n_slots : 0;
            wait_for_stage(full, turn & 1);
            for (u32 r = 0; r < g.n; r++)
                for (u32 c = member * 4; c < columns.n; c += 4 * q.team_warps)
                    multiply(stage, g, r, c, g.entry[r] + behind);
            if (is_last(s, team, q.team_warps, turn) && i + q.n_stages < s.n_groups) {
                request(s.groups[i + q.n_stages], team);
                request_hidden(s.groups[i + q.n_stages], team);
            }
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
    u32 n_rows = p.step->n_rows, warp = threadIdx.x / 32;
    struct few_down<F> down = {
        q, s, moe_few_shared, (f32 *)(moe_few_shared + q.rows_at), groups_of(p.column_groups, p.more_columns)
    };

    begin_state(q, s);
    __syncthreads();
    // The logits are there: moe_few_up lets this launch begin when its own wait is over.
    if (n_rows > 0) {
        choose_rows(q, s, n_rows, true);
        find_groups(p, s, n_rows);
        if (warp < min(q.n_stages, s.n_groups))
            down.request(s.groups[warp], warp);
    }
    wait_for_inputs();
    if (n_rows == 0)
        return;
    if (warp < min(q.n_stages, s.n_groups))
        down.request_hidden(s.groups[warp], warp);
    down.run(n_rows);
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
