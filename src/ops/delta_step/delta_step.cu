// delta_step.cu - the operation as defined in delta_step.h, for few rows: a block walks a sequence's rows
// with one head's state in registers.
//
//   a thread: 32 numbers of a column of the state (as in scan.cu: a warp has 8 columns x 4 slices of d_k);
//   the first 384 are also channels of the convolution: q and k of the key head, v of the head
//
//   row: inputs -> convolution -> q, k, v in shared memory -> the state moves on -> norm and gate -> out
//
// Grid: (heads, rows); a block whose row begins no sequence ends at once. Pipeline: the states, the taps and
// what else earlier launches do not write is loaded before the block's inputs are there, since a step never
// reads a state that it has written (device/states.h). The heads of a key head all read the convolution's
// state of q and k: the last of them to have done so writes it. Bound by the state's bytes.
#include "ops/delta_step/delta_step_cuda.h"
#include "ops/scan/scan.cuh"
#ifndef CUDA_EMULATED // which has no packing
#include "gemm/cuda/epilogue_pack.cuh"
#endif

enum { SLICES = 4, SLICE = DELTA_DIM / SLICES, WARPS = DELTA_THREADS / 32, CHANNELS = 3 * DELTA_DIM };

struct delta_room { // shared memory
    alignas(16) f32 q[SLICES][SLICE + 4];
    alignas(16) f32 k[SLICES][SLICE + 4]; // 16-byte loads of four slices use 16 banks
    f32 v[DELTA_DIM], out[DELTA_DIM];
    f32 squares[2 * DELTA_DIM / 32]; // of each warp's part of q, then of k
    f32 out_squares[WARPS];
    f32 decay, rule;
    u32 last;
};

struct delta_channel {                              // of the convolution: a thread's
    u32 at;                                         // its number
    f32 w[DELTA_TAPS];                              // the oldest first
    f32 kept[DELTA_TAPS - 1], past[DELTA_TAPS - 1]; // inputs before the sequence's rows, before this row
};

static __device__ __forceinline__ u32 key_head(const struct delta_step_params &p)
{
    return scan_key_head(p.scan.args.n_heads, p.scan.args.n_k_heads, p.scan.args.flags, blockIdx.x);
}

static __device__ __forceinline__ f32 *conv_state(const struct delta_step_params &p, u32 state, u32 channel)
{
    return p.scan.states + (u64)state * p.conv.state_words + p.conv.state_at + channel;
}

static __device__ __forceinline__ f32 input_at(const struct delta_step_params &p, u32 row, u32 channel)
{
    return p.in[(u64)row * p.conv.in_cols + p.conv.at + channel];
}

// What is older than the step. from: the state before the sequence's rows.
static __device__ __forceinline__ struct delta_channel channel_of(const struct delta_step_params &p, u32 from)
{
    const struct scan_args &a = p.scan.args;
    u32 part = threadIdx.x / DELTA_DIM, head = part == 2 ? blockIdx.x : key_head(p);
    struct delta_channel c;

    c.at = (part == 0 ? a.q_at : part == 1 ? a.k_at : a.v_at) + head * DELTA_DIM + threadIdx.x % DELTA_DIM;
    for (u32 j = 0; j < DELTA_TAPS && part < 3; j++)
        c.w[j] = p.w[c.at * DELTA_TAPS + j];
    for (u32 j = 0; j + 1 < DELTA_TAPS && part < 3; j++)
        c.past[j] = c.kept[j] = from == STATE_ZERO ? 0 : conv_state(p, from, c.at)[j * p.conv.n_channels];
    return c;
}

// The row's number of the channel, to its place.
static __device__ __forceinline__ void convolve(const struct delta_step_params &p, u32 row,
                                                struct delta_channel &c, struct delta_room &room)
{
    u32 part = threadIdx.x / DELTA_DIM, i = threadIdx.x % DELTA_DIM;
    f32 u = input_at(p, row, c.at), sum = 0;

#pragma unroll
    for (u32 j = 0; j + 1 < DELTA_TAPS; j++)
        sum += c.w[j] * c.past[j];
    sum += c.w[DELTA_TAPS - 1] * u;
#pragma unroll
    for (u32 j = 0; j + 2 < DELTA_TAPS; j++)
        c.past[j] = c.past[j + 1];
    c.past[DELTA_TAPS - 2] = u;
    f32 x = sum / (1 + expf(-sum));
    if (part == 2) {
        room.v[i] = x;
        return;
    }
    (part == 0 ? room.q : room.k)[i / SLICE][i % SLICE] = x;
    f32 squares = warp_sum(x * x);
    if (threadIdx.x % 32 == 0)
        room.squares[threadIdx.x / 32] = squares;
}

static __device__ __forceinline__ struct scan_move row_of(const struct delta_room &room)
{
    const f32 *s = room.squares;
    f32 q = (s[0] + s[1]) + (s[2] + s[3]), k = (s[4] + s[5]) + (s[6] + s[7]);

    return { room.decay, room.rule, 1 / sqrtf(q + SCAN_EPS) / sqrtf((f32)DELTA_DIM),
             1 / sqrtf(k + SCAN_EPS) };
}

// Norm and gate of number threadIdx.x of the row's head.
static __device__ __forceinline__ void put_out(const struct delta_step_params &p, u32 row, f32 z, f32 scale,
                                               const struct delta_room &room)
{
    f32 squares = 0;

#pragma unroll
    for (u32 i = 0; i < WARPS; i++)
        squares += room.out_squares[i];
    f32 v = room.out[threadIdx.x] * (z / (1 + expf(-z))) * norm_factor(squares, DELTA_DIM, p.eps) * scale;
    p.scan.out[((u64)row * p.scan.args.n_heads + blockIdx.x) * DELTA_DIM + threadIdx.x] = v;
#ifndef CUDA_EMULATED
    if (p.packed_out.at)
        pack_put_warp(p.packed_out, row, blockIdx.x * DELTA_DIM + threadIdx.x / 32 * 32, v);
#endif
}

// The channel's states behind the rows [first, end): the last inputs of those kept and those of the step.
static __device__ __forceinline__ void give_channel(const struct delta_step_params &p, u32 first, u32 end,
                                                    const struct delta_channel &c)
{
    for (u32 row = first; row < end; row++) {
        u32 to = step_states_to(p.scan.step)[row], n = row - first + 1; // n: inputs of the step
        if (to == STATE_NONE)
            continue;
#pragma unroll
        for (u32 j = 0; j + 1 < DELTA_TAPS; j++) {
            f32 u = c.past[j];
            if (row + 1 < end && j + n >= DELTA_TAPS - 1)
                u = input_at(p, first + j + n - (DELTA_TAPS - 1), c.at);
            else if (row + 1 < end)
#pragma unroll
                for (u32 i = 0; i + 1 < DELTA_TAPS; i++)
                    u = i == j + n ? c.kept[i] : u;
            conv_state(p, to, c.at)[j * p.conv.n_channels] = u;
        }
    }
}

// The rows of the sequence that begins at `first`.
static __device__ __forceinline__ void delta_walk(const struct delta_step_params &p, u32 first)
{
    __shared__ struct delta_room room;
    const struct scan_args &a = p.scan.args;
    const struct step *step = p.scan.step;
    u32 lane = threadIdx.x % 32, slice = lane / 8, column = threadIdx.x / 32 * 8 + lane % 8,
        from = step_states_from(step)[first], row = first;
    f32 *states =
        p.scan.states + a.state_at + ((u64)blockIdx.x * DELTA_DIM + slice * SLICE) * DELTA_DIM + column;
    f32 state[SLICE], scale = threadIdx.x < DELTA_DIM ? p.scale[blockIdx.x * p.scale_step + threadIdx.x] : 0;

#pragma unroll
    for (u32 j = 0; j < SLICE; j++)
        state[j] = from == STATE_ZERO ? 0 : states[(u64)from * a.state_words + j * DELTA_DIM];
    struct delta_channel channel = channel_of(p, from);
    wait_for_inputs();
    // Heads of the key head that have read the convolution's state of the sequence, before this one. The
    // thread asks when all of the block have, and needs to know at the end: the count comes meanwhile.
    // Nothing need be ordered but what has been read.
    u32 *arrived = p.arrived + first * a.n_k_heads + key_head(p), n_before = 0;
    for (bool goes_on = true; goes_on; row++) {
        u32 to = step_states_to(step)[row];
        f32 z = 0;
        goes_on = sequence_goes_on(step, row + 1);
        if (threadIdx.x < DELTA_DIM)
            z = p.z[(u64)row * p.z_cols + p.z_at + blockIdx.x * DELTA_DIM + threadIdx.x];
        if (threadIdx.x < CHANNELS)
            convolve(p, row, channel, room);
        else if (threadIdx.x == CHANNELS)
            room.decay = expf(take_gates(p.scan, blockIdx.x, row, room.rule));
        __syncthreads();
        if (threadIdx.x == DELTA_THREADS - 1 && row == first)
            n_before = atomicAdd(arrived, 1);
        f32 out = scan_move_on(state, (const float4 *)room.k[slice], (const float4 *)room.q[slice],
                               row_of(room), room.v[column], true),
            squares = out * out;
        if (slice == 0)
            room.out[column] = out;
#pragma unroll
        for (u32 o = 1; o < 8; o *= 2)
            squares += __shfl_xor_sync(~0u, squares, o);
        if (lane == 0)
            room.out_squares[threadIdx.x / 32] = squares;
#pragma unroll
        for (u32 j = 0; j < SLICE; j++)
            if (to != STATE_NONE)
                states[(u64)to * a.state_words + j * DELTA_DIM] = state[j];
        __syncthreads();
        if (threadIdx.x < DELTA_DIM)
            put_out(p, row, z, scale, room);
    }
    if (threadIdx.x == DELTA_THREADS - 1) {
        room.last = n_before + 1 == a.n_heads / a.n_k_heads;
        if (room.last)
            *arrived = 0;
    }
    __syncthreads();
    if (threadIdx.x < CHANNELS && (room.last || threadIdx.x >= 2 * DELTA_DIM))
        give_channel(p, first, row, channel);
}

extern "C" __global__ void __launch_bounds__(DELTA_THREADS, 2)
    delta_step(const __grid_constant__ struct delta_step_params p)
{
    u32 row = blockIdx.y;

    if (row < p.scan.step->n_rows && !sequence_goes_on(p.scan.step, row))
        delta_walk(p, row);
    else
        wait_for_inputs();
}
