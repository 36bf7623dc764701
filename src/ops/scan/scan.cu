// scan.cu - the recurrence as defined in scan.h, row after row: a block walks a sequence's rows with 32
// columns of one head's state in registers.
//
//   a warp: 8 columns x 4 slices of d_k (lane = slice * 8 + column); a thread holds its column's numbers of
//   one slice. GROUP rows of q and k at once go to shared memory, by slices that lie in other banks, with the
//   gates and the factors that bring them to length 1; then the warps go their own ways: four numbers of q or
//   k to a load, and a row costs two sums over four lanes.
//
// Grid: (heads x columns / 32, sequence_blocks()); the blocks of rows that begin no sequence end at once, and
// prompts may be left to scan_blocks. The state is read and written once for each sequence. Bound by the
// chain of rows in prompts, by the state's bytes in decoding.
#include "ops/scan/scan.cuh"

#define GROUP 16u

template <u32 J> struct scan_room {             // J: numbers of a slice
    f32 q[GROUP][4][J + 4], k[GROUP][4][J + 4]; // 16-byte loads of four slices use 16 banks
    f32 v[GROUP][SCAN_COLUMNS], q_factor[GROUP], k_factor[GROUP], decay[GROUP], factor[GROUP];
    u32 to[GROUP];
};

// How many of the rows from `row` on, GROUP at most, belong to one sequence. The same in all lanes of all
// warps.
static __device__ __forceinline__ u32 rows_of_group(const struct step *step, u32 row)
{
    u32 lane = threadIdx.x & 31;
    bool goes_on = lane == 0 || (lane < GROUP && sequence_goes_on(step, row + lane));

    return __ffs(~__ballot_sync(~0u, goes_on)) - 1;
}

// q, k and v of n rows, with zeros behind q and k, and what the warps need to know of a row.
template <u32 J>
static __device__ void take_rows(const struct scan_params &p, u32 head, u32 column, u32 first, u32 n,
                                 struct scan_room<J> &room)
{
    const struct scan_args &a = p.args;
    u32 lane = threadIdx.x & 31, kh = scan_key_head(a.n_heads, a.n_k_heads, a.flags, head);
    bool delta = a.flags & SCAN_DELTA;

    for (u32 i = threadIdx.x / 32; i < n; i += 4) {
        const f32 *in = p.in + (u64)(first + i) * a.in_cols;
        f32 q_sum = 0, k_sum = 0;
#pragma unroll
        for (u32 c = lane; c < 4 * J; c += 32) {
            f32 q = c < a.d_k ? in[a.q_at + kh * a.d_k + c] : 0,
                k = c < a.d_k ? in[a.k_at + kh * a.d_k + c] : 0;
            room.q[i][c / J][c % J] = q;
            room.k[i][c / J][c % J] = k;
            q_sum += q * q;
            k_sum += k * k;
        }
        room.v[i][lane] = column + lane < a.d_v ? in[a.v_at + head * a.d_v + column + lane] : 0;
        q_sum = warp_sum(q_sum);
        k_sum = warp_sum(k_sum);
        if (lane > 0)
            continue;
        room.q_factor[i] = delta ? 1 / sqrtf(q_sum + SCAN_EPS) / sqrtf((f32)a.d_k) : 1;
        room.k_factor[i] = delta ? 1 / sqrtf(k_sum + SCAN_EPS) : 1;
        room.to[i] = step_states_to(p.step)[first + i];
        room.decay[i] = expf(take_gates(p, head, first + i, room.factor[i]));
    }
}

template <u32 J>
static __device__ __forceinline__ void give_state(const struct scan_params &p, const f32 (&state)[J],
                                                  u32 slice, f32 *to)
{
#pragma unroll
    for (u32 j = 0; j < J; j++)
        if (slice * J + j < p.args.d_k)
            to[(u64)j * p.args.d_v] = state[j];
}

// The rows of the sequence that begins at `row`.
template <u32 J> static __device__ void scan_walk(const struct scan_params &p, u32 row)
{
    __shared__ __align__(16) struct scan_room<J> room;
    const struct scan_args &a = p.args;
    u32 n_blocks = (a.d_v + SCAN_COLUMNS - 1) / SCAN_COLUMNS, head = blockIdx.x / n_blocks,
        lane = threadIdx.x & 31, slice = lane / 8, own = threadIdx.x / 32 * 8 + lane % 8,
        column = blockIdx.x % n_blocks * SCAN_COLUMNS;
    bool delta = a.flags & SCAN_DELTA, inside = column + own < a.d_v;
    u32 from = step_states_from(p.step)[row];
    f32 *states = p.states + a.state_at + ((u64)head * a.d_k + slice * J) * a.d_v + column + own;
    f32 state[J], skip = p.d ? p.d[head] : 0;
#pragma unroll
    for (u32 j = 0; j < J; j++)
        state[j] = inside && slice * J + j < a.d_k && from != STATE_ZERO
                       ? states[(u64)from * a.state_words + (u64)j * a.d_v]
                       : 0;
    for (u32 n = 0, goes_on = 1; goes_on; row += n) {
        n = rows_of_group(p.step, row);
        goes_on = sequence_goes_on(p.step, row + n);
        __syncthreads(); // the rows before are done
        take_rows(p, head, column, row, n, room);
        __syncthreads();
        for (u32 i = 0; i < n; i++) {
            f32 v = room.v[i][own];
            f32 out = scan_move_on(state, (const float4 *)room.k[i][slice], (const float4 *)room.q[i][slice],
                                   { room.decay[i], room.factor[i], room.q_factor[i], room.k_factor[i] }, v,
                                   delta) +
                      skip * v;
            if (inside && slice == 0)
                p.out[((u64)(row + i) * a.n_heads + head) * a.d_v + column + own] = out;
            if (inside && room.to[i] != STATE_NONE)
                give_state(p, state, slice, states + (u64)room.to[i] * a.state_words);
        }
    }
}

template <u32 J> static __device__ __forceinline__ void scan_all(const struct scan_params &p)
{
    u32 first, begins = sequence_begins_of(p.step, blockIdx.y, p.n_single, first);

    wait_for_inputs();
    for (; begins; begins &= begins - 1) {
        u32 row = first + (u32)__ffs((int)begins) - 1;
        if (p.by_rows || !scan_is_long(p.step, row))
            scan_walk<J>(p, row);
    }
}

extern "C" __global__ void __launch_bounds__(128) scan_rows(const __grid_constant__ struct scan_params p)
{
    scan_all<32>(p);
}

extern "C" __global__ void __launch_bounds__(128) scan_rows_wide(const __grid_constant__ struct scan_params p)
{
    scan_all<64>(p);
}
