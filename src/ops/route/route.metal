// route.metal - the operation as defined in route.h, in two launches: logits by simdgroups that take two
// experts and eight rows, then a threadgroup for each row, which normalises it and chooses.
//
// The order of a logit's sum depends on n_cols alone. The norm's factor multiplies the finished sum, as in
// gemm/metal/rows.metalh. Keys are compared as integers in the order of the floats that they stand for: fast
// math may not see infinities, and 0 is below every key.
#include "device/metal/msl.h"
#include "gemm/metal/runs.metalh"
#include "ops/route/route_metal.h"

constant uint ROUTE_FORMAT [[function_constant(0)]];
constant uint ROUTE_IN_RUNS [[function_constant(1)]]; // n_cols is a multiple of 8
constant uint ROUTE_BIASED [[function_constant(2)]];
constant uint ROUTE_SELECT_BIASED [[function_constant(3)]];
constant uint ROUTE_GATED [[function_constant(4)]]; // by the shared gate
constant uint ROUTE_SCALED [[function_constant(5)]];

struct logits { // of two experts and some rows
    f32 at[2][ROUTE_ROWS];
    f32 squares[ROUTE_ROWS];
};

static f32 dot_add(float4 a, float4 b, f32 sum)
{
    return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}

// A lane's part: every 32nd run of eight columns.
static void add_runs(device const float4 *in, device const float4 *norm, device const uchar *w0,
                     device const uchar *w1, uint3 shape, thread struct logits &s)
{
    u32 n_cols = shape.x, n_rows = shape.y, lane = shape.z;

    for (u32 run = lane; run < n_cols / 8; run += 32) {
        struct run a = run_load(ROUTE_FORMAT, w0, run), b = run_load(ROUTE_FORMAT, w1, run);
        float4 n[2] = { norm[2 * run], norm[2 * run + 1] };
        UNROLL for (u32 m = 0; m < ROUTE_ROWS; m++) if (m < n_rows)
        {
            device const float4 *x = in + m * (n_cols / 4) + 2 * run;
            float4 low = x[0], high = x[1];
            s.squares[m] = dot_add(high, high, dot_add(low, low, s.squares[m]));
            low *= n[0];
            high *= n[1];
            s.at[0][m] = dot_add(a.high, high, dot_add(a.low, low, s.at[0][m]));
            s.at[1][m] = dot_add(b.high, high, dot_add(b.low, low, s.at[1][m]));
        }
    }
}

// The same for any width: every 32nd column.
static void add_columns(device const f32 *in, device const f32 *norm, device const uchar *w0,
                        device const uchar *w1, uint3 shape, thread struct logits &s)
{
    u32 n_cols = shape.x, n_rows = shape.y, lane = shape.z;

    for (u32 c = lane; c < n_cols; c += 32) {
        f32 a = plain_element(ROUTE_FORMAT, w0, c), b = plain_element(ROUTE_FORMAT, w1, c), n = norm[c];
        UNROLL for (u32 m = 0; m < ROUTE_ROWS; m++) if (m < n_rows)
        {
            f32 x = in[m * n_cols + c];
            s.squares[m] = fma(x, x, s.squares[m]);
            s.at[0][m] = fma(a, x * n, s.at[0][m]);
            s.at[1][m] = fma(b, x * n, s.at[1][m]);
        }
    }
}

// Grid: tiles of ROUTE_EXPERTS, tiles of ROUTE_ROWS; 128 threads. logits: [rows, n_experts].
kernel void route_logits(constant struct route_args &args [[buffer(0)]],
                         constant struct step &step [[buffer(1)]], device const f32 *in [[buffer(2)]],
                         device const f32 *norm [[buffer(3)]], device const uchar *router [[buffer(4)]],
                         device const f32 *bias [[buffer(5)]], device f32 *logits [[buffer(8)]],
                         uint3 at [[threadgroup_position_in_grid]],
                         uint thread_index [[thread_index_in_threadgroup]])
{
    u32 lane = thread_index % 32, expert = at.x * ROUTE_EXPERTS + thread_index / 32 * 2,
        row = at.y * ROUTE_ROWS;
    u64 row_bytes = format_row_bytes(ROUTE_FORMAT, args.n_cols);
    f32 mine = 0.0f;
    struct logits s = {};

    if (row >= step.n_rows || expert >= args.n_experts)
        return;
    bool both = expert + 1 < args.n_experts;
    device const uchar *w0 = router + expert * row_bytes, *w1 = both ? w0 + row_bytes : w0;
    device const f32 *first = in + u64(row) * args.n_cols;
    uint3 shape = uint3(args.n_cols, min(step.n_rows - row, u32(ROUTE_ROWS)), lane);
    if (ROUTE_IN_RUNS)
        add_runs((device const float4 *)first, (device const float4 *)norm, w0, w1, shape, s);
    else
        add_columns(first, norm, w0, w1, shape, s);
    UNROLL for (u32 m = 0; m < ROUTE_ROWS; m++)
    {
        f32 factor = norm_factor(simd_sum(s.squares[m]), args.n_cols, args.eps) * args.gain;
        f32 a = simd_sum(s.at[0][m]) * factor, b = simd_sum(s.at[1][m]) * factor;
        mine = lane == 2 * m ? a : lane == 2 * m + 1 ? b : mine;
    }
    u32 e = expert + lane % 2;
    if (lane / 2 < shape.y && (lane % 2 == 0 || both))
        logits[u64(row + lane / 2) * args.n_experts + e] = mine + (ROUTE_BIASED ? bias[e] : 0.0f);
}

// Integers in the order of floats; both zeros are one.
static u32 ordered(f32 v)
{
    u32 bits = as_type<u32>(v);

    bits = bits == 0x80000000u ? 0u : bits;
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}
static f32 unordered(u32 key)
{
    return as_type<f32>(key >> 31 ? key ^ 0x80000000u : ~key);
}

static f32 sigmoid(f32 x)
{
    return 1.0f / (1.0f + precise::exp(min(-x, 80.0f)));
}

// The index of the largest key of [n], which becomes 0; ties to the lowest. For one simdgroup: a lane touches
// every 32nd key.
static u32 take_best(threadgroup u32 *keys, u32 n, u32 lane)
{
    u32 best = 0, at = n - 1;

    for (u32 i = lane; i < n; i += 32)
        if (keys[i] > best) {
            best = keys[i];
            at = i;
        }
    u32 all = simd_max(best);
    at = simd_min(best == all ? at : n - 1);
    if (at % 32 == lane)
        keys[at] = 0;
    return at;
}

// Scores and keys of a row's experts. False: a logit is no finite number.
static bool scores_fill(constant struct route_args &args, device const u32 *logits, threadgroup f32 *scores,
                        threadgroup u32 *keys, u32 lane)
{
    f32 row_max = -3e38f, row_sum = 0.0f;
    u32 bad = 0;

    for (u32 e = lane; e < args.n_experts; e += 32) {
        u32 bits = logits[e];
        bad |= (bits & 0x7f800000u) == 0x7f800000u ? 1u : 0u;
        scores[e] = as_type<f32>(bits);
        keys[e] = ordered(scores[e]);
        row_max = max(row_max, scores[e]);
    }
    row_max = simd_max(row_max);
    if (simd_max(bad) != 0)
        return false;
    if (args.rule.scores == ROUTE_CHOSEN)
        return true;
    for (u32 e = lane; e < args.n_experts; e += 32) {
        scores[e] =
            args.rule.scores == ROUTE_SIGMOID ? sigmoid(scores[e]) : precise::exp(scores[e] - row_max);
        row_sum += scores[e];
    }
    row_sum = args.rule.scores == ROUTE_SIGMOID ? 1.0f : simd_sum(row_sum);
    for (u32 e = lane; e < args.n_experts; e += 32)
        scores[e] /= row_sum;
    return true;
}

static void keys_add_bias(constant struct route_args &args, device const f32 *select_bias,
                          threadgroup const f32 *scores, threadgroup u32 *keys, u32 lane)
{
    for (u32 e = lane; e < args.n_experts; e += 32)
        keys[e] = ordered(scores[e] + select_bias[e]);
}

// The rank of each group, and the keys of all but the best become 0. ranks: [n_groups].
static void leave_groups(constant struct route_args &args, threadgroup u32 *keys, threadgroup u32 *ranks,
                         u32 lane)
{
    u32 n_groups = args.rule.n_groups, size = args.n_experts / n_groups;

    for (u32 g = lane; g < n_groups; g += 32) {
        u32 best = 0, second = 0;
        for (u32 e = g * size; e < (g + 1) * size; e++) {
            second = max(second, min(best, keys[e]));
            best = max(best, keys[e]);
        }
        ranks[g] = args.rule.rank == ROUTE_BEST ? best : ordered(unordered(best) + unordered(second));
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (u32 i = 0; i < args.rule.n_used_groups; i++)
        take_best(ranks, n_groups, lane);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (u32 e = lane; e < args.n_experts; e += 32)
        keys[e] = ranks[e / size] == 0 ? keys[e] : 0;
}

// Lane j has slot j. weight: in, the score that was chosen.
static f32 slot_weight(constant struct route_rule &rule, f32 weight, bool used)
{
    if (rule.scores == ROUTE_CHOSEN) {
        f32 row_max = simd_max(used ? weight : -3e38f);
        weight = used ? precise::exp(weight - row_max) : 0.0f;
        weight /= simd_sum(weight);
    }
    f32 sum = simd_sum(used ? weight : 0.0f);
    return (rule.normalise ? weight / max(sum, rule.floor) : weight) * rule.scale;
}

// Grid: rows; ROUTE_THREADS threads.
kernel void route_choose(constant struct route_args &args [[buffer(0)]],
                         constant struct step &step [[buffer(1)]], device const f32 *in [[buffer(2)]],
                         device const f32 *norm [[buffer(3)]], device const f32 *select_bias [[buffer(6)]],
                         device const f32 *shared_gate [[buffer(7)]], device const u32 *logits [[buffer(8)]],
                         device f32 *normed [[buffer(9)]], device f32 *ids [[buffer(10)]],
                         device f32 *weights [[buffer(11)]], device const f32 *expert_scale [[buffer(12)]],
                         uint3 at [[threadgroup_position_in_grid]],
                         uint thread_index [[thread_index_in_threadgroup]])
{
    threadgroup f32 room[32];
    threadgroup f32 scores[ROUTE_MAX_EXPERTS];
    threadgroup u32 keys[ROUTE_MAX_EXPERTS];
    threadgroup u32 ranks[ROUTE_MAX_EXPERTS];
    u32 n_cols = args.n_cols, n_slots = args.n_slots, lane = thread_index % 32, row = at.x;
    device const f32 *x = in + u64(row) * n_cols;
    f32 squares = 0.0f, gate = 0.0f, weight = 0.0f;
    u32 id = lane;

    if (row >= step.n_rows)
        return;
    for (u32 c = thread_index; c < n_cols; c += ROUTE_THREADS)
        squares = fma(x[c], x[c], squares);
    f32 factor = norm_factor(threadgroup_sum(squares, room, thread_index, ROUTE_THREADS), n_cols, args.eps) *
                 args.gain;
    for (u32 c = thread_index; c < n_cols; c += ROUTE_THREADS) {
        f32 n = x[c] * factor * norm[c];
        normed[u64(row) * n_cols + c] = n;
        if (ROUTE_GATED)
            gate = fma(n, shared_gate[c], gate);
    }
    gate = ROUTE_GATED ? sigmoid(threadgroup_sum(gate, room, thread_index, ROUTE_THREADS)) : 1.0f;
    if (thread_index >= 32)
        return;
    bool good = scores_fill(args, logits + u64(row) * args.n_experts, scores, keys, lane);
    if (good && ROUTE_SELECT_BIASED)
        keys_add_bias(args, select_bias, scores, keys, lane);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    if (good && args.rule.n_groups > 1)
        leave_groups(args, keys, ranks, lane);
    for (u32 j = 0; good && j < n_slots; j++) {
        u32 best = take_best(keys, args.n_experts, lane);
        id = lane == j ? best : id;
    }
    weight = slot_weight(args.rule, good && lane < n_slots ? scores[id] : 0.0f, lane < n_slots);
    if (ROUTE_SCALED && lane < n_slots)
        weight *= expert_scale[id];
    device u32 *bits = (device u32 *)weights + u64(row) * (n_slots + 1);
    if (lane < n_slots) {
        ids[u64(row) * n_slots + lane] = f32(id);
        bits[lane] = good ? as_type<u32>(weight) : 0x7fc00000u;
    }
    if (lane == 0)
        bits[n_slots] = good ? as_type<u32>(gate) : 0x7fc00000u;
}
