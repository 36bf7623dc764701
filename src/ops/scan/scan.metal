// scan.metal - the recurrence as defined in scan.h, row after row: a threadgroup walks a sequence's rows with
// 32 columns of one head's state in registers.
//
// A simdgroup has 8 columns, and 4 slices of d_k: lane = slice * 8 + column. A thread holds every fourth
// number of its column. A few rows of q and k at once go to threadgroup memory, with the gates and the
// factors that bring them to length 1; then the simdgroups go their own ways.
#include "device/metal/msl.h"
#include "ops/scan/scan.h"

constant u32 HAS_D [[function_constant(0)]];

#define GROUP 4u

struct scan_room {
    f32 q[GROUP][SCAN_MAX_DIM], k[GROUP][SCAN_MAX_DIM];
    f32 q_factor[GROUP], k_factor[GROUP], decay[GROUP], factor[GROUP];
};

struct scan_inputs {
    device const f32 *in, *dt, *beta, *a, *dt_bias;
    u32 head, thread_index;
};

inline f32 slices_sum(f32 v)
{
    v += simd_shuffle_xor(v, 8);
    return v + simd_shuffle_xor(v, 16);
}

// log(1 + e^x); there is no log1p, so a small e^x takes its series.
inline f32 softplus(f32 x)
{
    f32 u = exp(min(x, 20.0f)), small = u * (1.0f - u * (0.5f - u * (1.0f / 3 - u * (0.25f - u * 0.2f))));
    return x > 20.0f ? x : u < 0.02f ? small : log(1.0f + u);
}

inline void take_gates(constant struct scan_args &args, thread const struct scan_inputs &s, u32 row, u32 i,
                       threadgroup struct scan_room &room)
{
    bool delta = args.flags & SCAN_DELTA;
    f32 t = softplus(s.dt[u64(row) * args.dt_cols + args.dt_at + s.head] + s.dt_bias[s.head]),
        a = s.a[s.head];

    if (!delta)
        t = min(max(t, args.t_min), args.t_max);
    room.decay[i] = exp((args.flags & SCAN_LOG_A ? -exp(a) : a) * t);
    room.factor[i] =
        delta ? 1.0f / (1.0f + exp(-s.beta[u64(row) * args.beta_cols + args.beta_at + s.head])) : t;
}

// q and k of n rows, behind them zeros, and what the simdgroups need to know of a row.
inline void take_rows(constant struct scan_args &args, thread const struct scan_inputs &s, u32 first, u32 n,
                      u32 padded, threadgroup struct scan_room &room)
{
    u32 lane = s.thread_index % 32, kh = scan_key_head(args.n_heads, args.n_k_heads, args.flags, s.head);
    bool delta = args.flags & SCAN_DELTA;

    for (u32 i = s.thread_index / 32; i < n; i += 4) {
        device const f32 *in = s.in + u64(first + i) * args.in_cols + kh * args.d_k;
        f32 q_sum = 0.0f, k_sum = 0.0f;
        for (u32 c = lane; c < padded; c += 32) {
            f32 q = c < args.d_k ? in[args.q_at + c] : 0.0f, k = c < args.d_k ? in[args.k_at + c] : 0.0f;
            room.q[i][c] = q;
            room.k[i][c] = k;
            q_sum += q * q;
            k_sum += k * k;
        }
        q_sum = simd_sum(q_sum);
        k_sum = simd_sum(k_sum);
        if (lane == 0) {
            room.q_factor[i] = delta ? 1.0f / sqrt(q_sum + SCAN_EPS) / sqrt(f32(args.d_k)) : 1.0f;
            room.k_factor[i] = delta ? 1.0f / sqrt(k_sum + SCAN_EPS) : 1.0f;
            take_gates(args, s, first + i, i, room);
        }
    }
}

// Moves the thread's numbers of its column on by a row. Returns S^T q, in all four slices.
template <u32 J>
inline f32 move_on(thread f32 (&state)[J], threadgroup struct scan_room &room, u32 i, u32 slice, f32 v,
                   bool delta)
{
    f32 decay = room.decay[i], d = room.factor[i] * v, out = 0.0f;

    if (delta) {
        f32 found = 0.0f;
        UNROLL for (u32 j = 0; j < J; j++) found += room.k[i][4 * j + slice] * state[j];
        d = room.factor[i] * (v - decay * (room.k_factor[i] * slices_sum(found)));
    }
    d *= room.k_factor[i];
    UNROLL for (u32 j = 0; j < J; j++)
    {
        state[j] = decay * state[j] + room.k[i][4 * j + slice] * d;
        out += room.q[i][4 * j + slice] * state[j];
    }
    return room.q_factor[i] * slices_sum(out);
}

template <u32 J>
inline void scan_walk(constant struct scan_args &args, constant struct step &step,
                      thread const struct scan_inputs &s, device const f32 *skips, device f32 *states,
                      device f32 *result, u32 column, u32 first, threadgroup struct scan_room &room)
{
    constant u32 *froms = step_states_from(&step), *tos = step_states_to(&step);
    u32 lane = s.thread_index % 32, slice = lane / 8, c = column + s.thread_index / 32 * 8 + lane % 8;
    bool delta = args.flags & SCAN_DELTA, inside = c < args.d_v;
    u64 at =
        args.state_at + (u64(s.head) * args.d_k + slice) * args.d_v + c; // of the column's first number here
    f32 state[J], skip = 0.0f;

    if (HAS_D)
        skip = skips[s.head];
    UNROLL for (u32 j = 0; j < J; j++)
    {
        state[j] = 0.0f;
        if (inside && 4 * j + slice < args.d_k && froms[first] != STATE_ZERO)
            state[j] = states[u64(froms[first]) * args.state_words + at + u64(4 * j) * args.d_v];
    }
    for (u32 row = first, n; row < step.n_rows && (row == first || froms[row] == STATE_NEXT); row += n) {
        for (n = 1; n < GROUP && row + n < step.n_rows && froms[row + n] == STATE_NEXT;)
            n++;
        threadgroup_barrier(mem_flags::mem_threadgroup); // the rows before are done
        take_rows(args, s, row, n, 4 * J, room);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (u32 i = 0; i < n; i++) {
            f32 v = inside ? s.in[u64(row + i) * args.in_cols + args.v_at + s.head * args.d_v + c] : 0.0f;
            f32 out = move_on<J>(state, room, i, slice, v, delta) + skip * v;
            if (inside && slice == 0)
                result[(u64(row + i) * args.n_heads + s.head) * args.d_v + c] = out;
            u32 to = tos[row + i];
            UNROLL for (u32 j = 0; j < J; j++) if (to != STATE_NONE && inside && 4 * j + slice < args.d_k)
                states[u64(to) * args.state_words + at + u64(4 * j) * args.d_v] = state[j];
        }
    }
}

#define SCAN_KERNEL(name, J)                                                                       \
    kernel void name(constant struct scan_args &args [[buffer(0)]],                                \
                     constant struct step &step [[buffer(1)]], device const f32 *in [[buffer(2)]], \
                     device const f32 *dt [[buffer(3)]], device const f32 *beta [[buffer(4)]],     \
                     device const f32 *a [[buffer(5)]], device const f32 *dt_bias [[buffer(6)]],   \
                     device const f32 *d [[buffer(7)]], device f32 *states [[buffer(8)]],          \
                     device f32 *out [[buffer(9)]], uint3 tile [[threadgroup_position_in_grid]],   \
                     uint thread_index [[thread_index_in_threadgroup]])                            \
    {                                                                                              \
        threadgroup struct scan_room room;                                                         \
        u32 n_blocks = (args.d_v + 31) / 32;                                                       \
        struct scan_inputs s = { in, dt, beta, a, dt_bias, tile.x / n_blocks, thread_index };      \
        if (tile.y >= step.n_rows || step_states_from(&step)[tile.y] == STATE_NEXT)                \
            return;                                                                                \
        scan_walk<J>(args, step, s, d, states, out, tile.x % n_blocks * 32, tile.y, room);         \
    }

SCAN_KERNEL(scan_rows, 32)
SCAN_KERNEL(scan_rows_wide, 64)
