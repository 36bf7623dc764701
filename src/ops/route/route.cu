// route.cu - the router of a mixture of experts: logits in fp32, then each row's choice; see route.h.
//
//                       8 experts, a warp each                           64 experts, 8 a warp
//                     +-----+-----+-- --+-----+                        +----+----+-- --+----+
//   route_logits      | w0  | w1  | ... | w7  |    route_logits_many   | w0 | w1 |     | w7 |   16 rows
//   8 rows            | lanes take columns in |    on tensor cores     +----+----+-- --+----+
//                     | turn                  |
//                     +-----------------------+
//   route_logits_tile 8 rows by 8 experts, 8 warps which share the columns; lanes have all 64 sums
//   route_choose      a warp per row: lane l has experts l, l + 32, ...; scores and keys in shared memory
//
// The order of a sum depends on n_cols and the router's format alone. route_logits_many streams columns
// through stages of shared memory; the others have no pipeline. No epilogue.
#include "gemm/cuda/row_plain.cuh"
#include "ops/route/route.cuh"
#include "ops/route/route_cuda.h"

// Four neighbouring numbers of a router in F32, F16 or BF16, the i-th such.
template <u32 FORMAT>
static __device__ __forceinline__ float4 router_four(const struct weight_planes &router, u64 i)
{
    if constexpr (FORMAT == QUANT_F32) {
        return __ldg((const float4 *)router.quants + i);
    } else {
        uint2 words = __ldg((const uint2 *)router.quants + i);
        if constexpr (FORMAT == QUANT_F16) {
            float2 a = __half22float2(*(__half2 *)&words.x), b = __half22float2(*(__half2 *)&words.y);
            return make_float4(a.x, a.y, b.x, b.y);
        } else {
            return make_float4(__uint_as_float(words.x << 16), __uint_as_float(words.x & 0xffff0000u),
                               __uint_as_float(words.y << 16), __uint_as_float(words.y & 0xffff0000u));
        }
    }
}

// Rows of such a router, four numbers at a time. Rows that the step lacks repeat its last: a loop without
// branches has all its loads under way at once.
template <u32 N, u32 FORMAT>
static __device__ __forceinline__ void dot_fours(const struct route_params &p, u32 expert, const f32 *x,
                                                 u32 n_rows, f32 (&sums)[ROUTE_TILE_ROWS])
{
    u32 n = p.args.n_cols / 4;
    const float4 *at = (const float4 *)x;

#pragma unroll 4
    for (u32 i = threadIdx.x % 32; i < n; i += 32) {
        float4 w = router_four<FORMAT>(p.router, (u64)expert * n + i);
#pragma unroll
        for (u32 r = 0; r < N; r++) {
            float4 v = at[(u64)min(r, n_rows - 1) * n + i];
            sums[r] = fmaf(w.w, v.w, fmaf(w.z, v.z, fmaf(w.y, v.y, fmaf(w.x, v.x, sums[r]))));
        }
    }
}

template <u32 FORMAT>
static __device__ __forceinline__ void dot_rows(const struct route_params &p, u32 expert, const f32 *x,
                                                u32 n_rows, f32 (&sums)[ROUTE_TILE_ROWS])
{
    if (n_rows == 1)
        dot_fours<1, FORMAT>(p, expert, x, 1, sums);
    else
        dot_fours<ROUTE_TILE_ROWS, FORMAT>(p, expert, x, n_rows, sums);
}

// The step's only row to shared memory, normalised; the first block writes it down.
static __device__ __forceinline__ void normalise(const struct route_params &p, f32 *x)
{
    __shared__ f32 room[33];
    f32 squares = 0;

    for (u32 i = threadIdx.x; i < p.args.n_cols; i += ROUTE_THREADS) {
        x[i] = p.in[i];
        squares += x[i] * x[i];
    }
    f32 factor = norm_factor(block_sum(squares, room), p.args.n_cols, p.args.eps) * p.args.gain;
    for (u32 i = threadIdx.x; i < p.args.n_cols; i += ROUTE_THREADS) {
        x[i] *= factor * p.norm[i];
        if (blockIdx.x == 0)
            p.normed[i] = x[i];
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(ROUTE_THREADS)
    route_logits(const __grid_constant__ struct route_params p)
{
    u32 lane = threadIdx.x % 32, expert = blockIdx.x * (ROUTE_THREADS / 32) + threadIdx.x / 32,
        first = blockIdx.y * ROUTE_TILE_ROWS;
    u32 all = p.step->n_rows, n_rows = all > first ? min(all - first, (u32)ROUTE_TILE_ROWS) : 0;
    extern __shared__ __align__(16) unsigned char row[];
    f32 sums[ROUTE_TILE_ROWS] = {};

    wait_for_inputs();
    if (p.in)
        normalise(p, (f32 *)row);
    if (expert >= p.args.n_experts || n_rows == 0)
        return;
    const f32 *x = p.in ? (const f32 *)row : p.normed + (u64)first * p.args.n_cols;
    u32 format = p.args.n_cols % 4 == 0 ? p.router.format : N_QUANTS;
    if (format == QUANT_F32) {
        dot_rows<QUANT_F32>(p, expert, x, n_rows, sums);
    } else if (format == QUANT_F16) {
        dot_rows<QUANT_F16>(p, expert, x, n_rows, sums);
    } else if (format == QUANT_BF16) {
        dot_rows<QUANT_BF16>(p, expert, x, n_rows, sums);
    } else {
#pragma unroll
        for (u32 r = 0; r < ROUTE_TILE_ROWS; r++)
            sums[r] =
                r < n_rows ? dot_row_any(p.router, expert, x + (u64)r * p.args.n_cols, { lane, 32 }) : 0;
    }
    f32 bias = p.bias ? p.bias[expert] : 0;
#pragma unroll
    for (u32 r = 0; r < ROUTE_TILE_ROWS; r++) {
        f32 sum = warp_sum(sums[r]);
        if (lane == 0 && r < n_rows)
            p.logits[(u64)(first + r) * p.args.n_experts + expert] = sum + bias;
    }
}

// The logits of some rows, a router in F32, F16 or BF16: eight rows by eight experts a block, whose warps
// share the columns.
enum { TILE = ROUTE_TILE_ROWS, TILE_WARPS = ROUTE_THREADS / 32 };

// Sums v over the warp: lane l has the sums of 2 l and 2 l + 1 in v[0] and v[1].
static __device__ __forceinline__ void sum_across(f32 (&v)[TILE * TILE])
{
    u32 lane = threadIdx.x % 32;

#pragma unroll
    for (u32 o = 16, n = TILE * TILE / 2; o; o /= 2, n /= 2)
#pragma unroll
        for (u32 k = 0; k < TILE * TILE / 2; k++)
            if (k < n) {
                f32 mine = lane & o ? v[k + n] : v[k], other = lane & o ? v[k] : v[k + n];
                v[k] = mine + __shfl_xor_sync(~0u, other, o);
            }
}

template <u32 FORMAT>
static __device__ __forceinline__ void logits_tile(const struct route_params &p, f32 (*sums)[TILE * TILE])
{
    u32 n = p.args.n_cols / 4, n_rows = p.step->n_rows, row = blockIdx.y * TILE, expert = blockIdx.x * TILE,
        lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const float4 *x = (const float4 *)p.normed;
    f32 v[TILE * TILE] = {};

    if (row >= n_rows)
        return;
    for (u32 i = threadIdx.x; i < n; i += ROUTE_THREADS) {
        float4 a[TILE], b[TILE];
#pragma unroll
        for (u32 k = 0; k < TILE; k++) { // missing ones repeat the last
            a[k] = x[(u64)min(row + k, n_rows - 1) * n + i];
            b[k] = router_four<FORMAT>(p.router, (u64)min(expert + k, p.args.n_experts - 1) * n + i);
        }
#pragma unroll
        for (u32 r = 0; r < TILE; r++)
#pragma unroll
            for (u32 e = 0; e < TILE; e++) {
                f32 &sum = v[r * TILE + e];
                sum = fmaf(a[r].w, b[e].w,
                           fmaf(a[r].z, b[e].z, fmaf(a[r].y, b[e].y, fmaf(a[r].x, b[e].x, sum))));
            }
    }
    sum_across(v);
    sums[warp][2 * lane] = v[0];
    sums[warp][2 * lane + 1] = v[1];
    __syncthreads();
    u32 r = row + threadIdx.x / TILE, e = expert + threadIdx.x % TILE;
    if (threadIdx.x >= TILE * TILE || r >= n_rows || e >= p.args.n_experts)
        return;
    f32 sum = 0;
#pragma unroll
    for (u32 i = 0; i < TILE_WARPS; i++)
        sum += sums[i][threadIdx.x];
    p.logits[(u64)r * p.args.n_experts + e] = sum + (p.bias ? p.bias[e] : 0);
}

extern "C" __global__ void __launch_bounds__(ROUTE_THREADS)
    route_logits_tile(const __grid_constant__ struct route_params p)
{
    __shared__ f32 sums[TILE_WARPS][TILE * TILE];

    wait_for_inputs();
    if (p.router.format == QUANT_F32)
        logits_tile<QUANT_F32>(p, sums);
    else if (p.router.format == QUANT_F16)
        logits_tile<QUANT_F16>(p, sums);
    else
        logits_tile<QUANT_BF16>(p, sums);
}

// A number as two with eleven bits each, as tensor cores want them; what is left is below 2^-21 of it.
struct route_split {
    u32 high, low;
};
static __device__ __forceinline__ struct route_split split(f32 v)
{
    u32 high = __float_as_uint(v) & 0xffffe000;
    return { high, __float_as_uint(v - __uint_as_float(high)) };
}
static __device__ __forceinline__ void mma_tf32(f32 (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The logits of many rows, a router in F32: 16 rows by 64 experts a block, eight warps of 16 by 8, on the
// tensor cores. A product of two fp32 numbers is the sum of three products of their parts. Columns stream
// through stages of 32 in shared memory, so many that memory's latency does not count; rows are padded by
// four numbers against bank conflicts. Tensor cores truncate their sums, so each eight columns are added up
// in fp32, and a product waits for two others only: twelve in a row took all the time.
enum {
    MANY_EXPERTS = 64,
    MANY_COLUMNS = 32,
    MANY_PITCH = MANY_COLUMNS + 4,
    MANY_LINES = ROUTE_MANY_ROWS + MANY_EXPERTS,
    MANY_COPIES = (MANY_LINES * MANY_COLUMNS / 4 + ROUTE_THREADS - 1) / ROUTE_THREADS // of a thread
};
static_assert(ROUTE_MANY_SHARED == ROUTE_MANY_STAGES * MANY_LINES * MANY_PITCH * 4, "");

// Lines of the rows, then of the router; missing ones repeat the last.
struct many_source {
    const f32 *from[MANY_COPIES];
    u32 to, column, n_cols;

    __device__ __forceinline__ many_source(const struct route_params &p, u32 n_rows, u32 shared)
    {
        u32 first = threadIdx.x / (MANY_COLUMNS / 4), at = threadIdx.x % (MANY_COLUMNS / 4) * 4;
        to = shared + (first * MANY_PITCH + at) * 4;
        column = 0;
        n_cols = p.args.n_cols;
#pragma unroll
        for (u32 i = 0; i < MANY_COPIES; i++) {
            u32 line = first + i * ROUTE_THREADS / (MANY_COLUMNS / 4),
                row = blockIdx.x * ROUTE_MANY_ROWS + line,
                expert = blockIdx.y * MANY_EXPERTS + line - ROUTE_MANY_ROWS;
            from[i] = at + (line < ROUTE_MANY_ROWS ? p.normed + (u64)min(row, n_rows - 1) * n_cols
                                                   : (const f32 *)p.router.quants +
                                                         (u64)min(expert, p.args.n_experts - 1) * n_cols);
        }
    }
    __device__ __forceinline__ void fetch(u32 stage)
    {
#pragma unroll
        for (u32 i = 0; i < MANY_COPIES; i++)
            if (column < n_cols && threadIdx.x + i * ROUTE_THREADS < MANY_LINES * MANY_COLUMNS / 4)
                asm volatile(
                    "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                        to + (stage * MANY_LINES + i * ROUTE_THREADS / (MANY_COLUMNS / 4)) * MANY_PITCH * 4),
                    "l"(from[i] + column)
                    : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
        column += MANY_COLUMNS;
    }
};

// Eight columns: of rows x + g and x + g + 8, and of experts w + g.
static __device__ __forceinline__ void multiply_columns(const f32 *x, const f32 *w, f32 (&d)[4])
{
    u32 at = threadIdx.x % 32 / 4 * MANY_PITCH + threadIdx.x % 4, high[4], low[4];
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        struct route_split v = split(x[at + i % 2 * 8 * MANY_PITCH + i / 2 * 4]);
        high[i] = v.high;
        low[i] = v.low;
    }
    struct route_split first = split(w[at]), second = split(w[at + 4]);
    mma_tf32(d, low, first.high, second.high);
    mma_tf32(d, high, first.low, second.low);
    mma_tf32(d, high, first.high, second.high);
}

extern "C" __global__ void __launch_bounds__(ROUTE_THREADS)
    route_logits_many(const __grid_constant__ struct route_params p)
{
    extern __shared__ __align__(16) unsigned char stages[];
    u32 n_rows = p.step->n_rows, lane = threadIdx.x % 32, expert = threadIdx.x / 32 * 8,
        n = p.args.n_cols / MANY_COLUMNS;
    f32 d[4] = {};

    wait_for_inputs();
    if (blockIdx.x * ROUTE_MANY_ROWS >= n_rows)
        return;
    struct many_source source(p, n_rows, (u32)__cvta_generic_to_shared(stages));
    for (u32 i = 0; i < ROUTE_MANY_STAGES - 1; i++)
        source.fetch(i);
    for (u32 i = 0; i < n; i++) {
        const f32 *x = (const f32 *)stages + i % ROUTE_MANY_STAGES * MANY_LINES * MANY_PITCH,
                  *w = x + (ROUTE_MANY_ROWS + expert) * MANY_PITCH;
        asm volatile("cp.async.wait_group %0;" ::"n"(ROUTE_MANY_STAGES - 2) : "memory");
        __syncthreads(); // these columns are there, and the stage before has been read
        source.fetch((i + ROUTE_MANY_STAGES - 1) % ROUTE_MANY_STAGES);
        f32 part[MANY_COLUMNS / 8][4] = {};
#pragma unroll
        for (u32 k = 0; k < MANY_COLUMNS / 8; k++)
            multiply_columns(x + 8 * k, w + 8 * k, part[k]);
#pragma unroll
        for (u32 k = 0; k < 4; k++)
            d[k] += (part[0][k] + part[1][k]) + (part[2][k] + part[3][k]);
    }
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
        u32 r = blockIdx.x * ROUTE_MANY_ROWS + lane / 4 + k / 2 * 8,
            e = blockIdx.y * MANY_EXPERTS + expert + lane % 4 * 2 + k % 2;
        if (r < n_rows && e < p.args.n_experts)
            p.logits[(u64)r * p.args.n_experts + e] = d[k] + (p.bias ? p.bias[e] : 0);
    }
}

// The largest of n numbers that are not taken, of a lane's own, then of the warp; ties to the lowest place.
// n: there is none.
static __device__ __forceinline__ u32 best_of(const f32 *key, u32 taken, u32 n)
{
    u32 lane = threadIdx.x % 32, best = n;
    f32 top = 0;

    for (u32 i = lane, bit = 1; i < n; i += 32, bit <<= 1)
        if (!(taken & bit) && (best == n || key[i] > top)) {
            best = i;
            top = key[i];
        }
#pragma unroll
    for (u32 o = 16; o; o >>= 1) {
        u32 other = __shfl_xor_sync(~0u, best, o);
        f32 value = __shfl_xor_sync(~0u, top, o);
        if (other != n && (best == n || value > top || (value == top && other < best))) {
            best = other;
            top = value;
        }
    }
    return __shfl_sync(~0u, best, 0);
}

static __device__ __forceinline__ f32 group_rank(const struct route_rule &rule, const f32 *key, u32 n)
{
    f32 best = -INFINITY, second = -INFINITY;

    for (u32 i = 0; i < n; i++) {
        second = key[i] > best ? best : key[i] > second ? key[i] : second;
        best = key[i] > best ? key[i] : best;
    }
    return rule.rank == ROUTE_BEST ? best : best + second;
}

// The lane's experts outside of the best groups, as bits of `taken`. rank: room for a number of each group.
static __device__ __forceinline__ u32 leave_groups(const struct route_args &args, const f32 *key, f32 *rank)
{
    u32 lane = threadIdx.x % 32, size = args.n_experts / args.rule.n_groups, chosen = 0, left = 0;

    for (u32 g = lane; g < args.rule.n_groups; g += 32)
        rank[g] = group_rank(args.rule, key + g * size, size);
    __syncwarp();
    for (u32 i = 0; i < args.rule.n_used_groups; i++) {
        u32 g = best_of(rank, chosen, args.rule.n_groups);
        chosen |= g % 32 == lane ? 1u << g / 32 : 0;
    }
    __syncwarp();
    for (u32 g = lane, bit = 1; g < args.rule.n_groups; g += 32, bit <<= 1)
        rank[g] = chosen & bit ? 1 : 0;
    __syncwarp();
    for (u32 e = lane, bit = 1; e < args.n_experts; e += 32, bit <<= 1)
        left |= rank[e / size] == 0 ? bit : 0;
    return left;
}

// Logits become scores; keys are set. Lanes work on experts of their own. False: some logit is no number.
static __device__ __forceinline__ bool score(const struct route_params &p, f32 *logits, f32 *key)
{
    u32 lane = threadIdx.x % 32, n = p.args.n_experts;
    f32 top = -INFINITY, sum = 0;
    bool finite = true;

    for (u32 e = lane; e < n; e += 32) {
        finite = finite && isfinite(logits[e]);
        top = fmaxf(top, logits[e]);
        key[e] = logits[e];
    }
    if (!__all_sync(~0u, finite))
        return false;
    top = warp_max(top);
    for (u32 e = lane; p.args.rule.scores == ROUTE_SOFTMAX && e < n; e += 32)
        sum += logits[e] = expf(logits[e] - top);
    sum = warp_sum(sum);
    for (u32 e = lane; e < n; e += 32) {
        if (p.args.rule.scores == ROUTE_SOFTMAX)
            logits[e] /= sum;
        else if (p.args.rule.scores == ROUTE_SIGMOID)
            logits[e] = sigmoid(logits[e]);
        if (p.select_bias)
            key[e] = logits[e] + p.select_bias[e];
    }
    __syncwarp();
    return true;
}

// A warp, a row: the experts of the slots. N: experts of a lane, at most; taken: bits of those that groups
// left out.
template <u32 N>
static __device__ __forceinline__ u32 best_slots(const struct route_args &args, const f32 *key, u32 taken)
{
    u32 lane = threadIdx.x % 32, keys[N];

#pragma unroll
    for (u32 i = 0; i < N; i++) {
        u32 e = i * 32 + lane;
        keys[i] = e < args.n_experts && !(taken >> i & 1) ? order_key(key[e]) : 0;
    }
    return choose(keys, args.n_slots);
}

static __device__ __forceinline__ void choose_row(const struct route_params &p, u32 row, f32 *logits,
                                                  f32 *key, f32 *rank)
{
    u32 lane = threadIdx.x % 32, n = p.args.n_slots, taken = 0, id = lane;
    f32 weight = __int_as_float(0x7fffffff);

    if (score(p, logits, key)) {
        if (p.args.rule.n_groups > 1)
            taken = leave_groups(p.args, key, rank);
        id = p.args.n_experts <= 128   ? best_slots<4>(p.args, key, taken)
             : p.args.n_experts <= 256 ? best_slots<8>(p.args, key, taken)
                                       : best_slots<ROUTE_MAX_EXPERTS / 32>(p.args, key, taken);
        weight = route_weigh(p.args.rule, lane < n ? logits[id] : 0, n);
        if (p.expert_scale && lane < n)
            weight *= p.expert_scale[id];
    } else if (lane == 0) {
        p.weights[(u64)row * (n + 1) + n] = weight;
    }
    if (lane < n) {
        p.ids[(u64)row * n + lane] = (f32)id;
        p.weights[(u64)row * (n + 1) + lane] = weight;
    }
}

// A warp: the row times the shared expert's gate; many loads are under way at once.
static __device__ __forceinline__ f32 gate_sum(const struct route_params &p, const f32 *x)
{
    u32 lane = threadIdx.x % 32, n = p.args.n_cols, fours = n % 4 == 0 ? n / 4 : 0;
    f32 sum = 0;

#pragma unroll 8
    for (u32 i = lane; i < fours; i += 32) {
        float4 a = ((const float4 *)x)[i], b = ((const float4 *)p.shared_gate)[i];
        sum = fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
    }
    for (u32 i = fours * 4 + lane; i < n; i += 32)
        sum = fmaf(x[i], p.shared_gate[i], sum);
    return warp_sum(sum);
}

extern "C" __global__ void __launch_bounds__(ROUTE_CHOOSE_THREADS)
    route_choose(const __grid_constant__ struct route_params p)
{
    __shared__ f32 logits[ROUTE_CHOOSE_THREADS / 32][ROUTE_MAX_EXPERTS],
        key[ROUTE_CHOOSE_THREADS / 32][ROUTE_MAX_EXPERTS];
    __shared__ f32 rank[ROUTE_CHOOSE_THREADS / 32][ROUTE_MAX_EXPERTS];
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32,
        row = blockIdx.x * (ROUTE_CHOOSE_THREADS / 32) + warp;

    wait_for_inputs();
    if (row >= p.step->n_rows)
        return;
    for (u32 e = lane; e < p.args.n_experts; e += 32)
        logits[warp][e] = p.logits[(u64)row * p.args.n_experts + e];
    f32 sum = p.shared_gate ? gate_sum(p, p.normed + (u64)row * p.args.n_cols) : 0;
    if (lane == 0)
        p.weights[(u64)row * (p.args.n_slots + 1) + p.args.n_slots] = p.shared_gate ? sigmoid(sum) : 1;
    __syncwarp();
    choose_row(p, row, logits[warp], key[warp], rank[warp]);
}
