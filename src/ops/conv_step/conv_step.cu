// conv_step.cu - the operation as defined in conv_step.h: a thread takes a channel of a few rows.
//
//   conv_step:         out[r][c] from the K inputs above it           grid: (channels / 128, rows / n_rows)
//   conv_step_states:  the states behind the rows of a sequence       grid: (.., sequence_blocks())
//
// The states are read by all rows near a sequence's beginning, so another launch writes them. Bound by
// memory.
#include "device/cuda/kernel.cuh"
#include "device/cuda/sequences.h"
#include "ops/conv_step/conv_step_cuda.h"

enum { AHEAD = 4 }; // words of 32 rows that are looked at together

static __device__ __forceinline__ f32 input_of(const struct conv_step_params &p, u32 row, u32 c)
{
    const f32 *in = p.in + (u64)row * p.args.in_cols + c;
    return p.args.flags & CONV_FACTOR ? in[p.args.at] * in[p.args.factor_at] : in[p.args.at];
}

// Input `ago` rows before the beginning of a sequence's rows in this step; ago from 1 to K - 1.
static __device__ __forceinline__ f32 kept_of(const struct conv_step_params &p, u32 from, u32 ago, u32 c)
{
    if (from == STATE_ZERO)
        return 0;
    return p.states[(u64)from * p.args.state_words + p.args.state_at +
                    (p.args.kernel_size - 1 - ago) * p.args.n_channels + c];
}

// The inputs before a row, by age, from 1 on.
static __device__ __forceinline__ void take_before(const struct conv_step_params &p, u32 row, u32 c,
                                                   f32 (&u)[CONV_MAX_KERNEL])
{
    const u32 *froms = step_states_from(p.step);
    u32 kernel = p.args.kernel_size, n_above = 0; // rows above of the same sequence

    while (n_above + 1 < kernel && froms[row - n_above] == STATE_NEXT)
        n_above++;
#pragma unroll
    for (u32 ago = 1; ago < CONV_MAX_KERNEL; ago++)
        if (ago < kernel)
            u[ago] = ago <= n_above ? input_of(p, row - ago, c)
                                    : kept_of(p, froms[row - n_above], ago - n_above, c);
}

extern "C" __global__ void __launch_bounds__(128) conv_step(const __grid_constant__ struct conv_step_params p)
{
    u32 c = blockIdx.x * 128 + threadIdx.x, first = blockIdx.y * p.n_rows, kernel = p.args.kernel_size,
        end = min(first + p.n_rows, p.step->n_rows);
    bool inside = c < p.args.n_channels;
    f32 w[CONV_MAX_KERNEL], u[CONV_MAX_KERNEL], bias = p.bias && inside ? p.bias[c] : 0; // by age

#pragma unroll
    for (u32 ago = 0; ago < CONV_MAX_KERNEL; ago++)
        w[ago] = ago < kernel && inside ? p.w[(u64)c * kernel + kernel - 1 - ago] : 0;
    wait_for_inputs();
    for (u32 row = first; inside && row < end; row++) {
        if (row == first || step_states_from(p.step)[row] != STATE_NEXT)
            take_before(p, row, c, u);
        u[0] = input_of(p, row, c);
        f32 sum = bias;
#pragma unroll
        for (u32 ago = CONV_MAX_KERNEL; ago-- > 0;)
            if (ago < kernel)
                sum += w[ago] * u[ago];
#pragma unroll
        for (u32 ago = CONV_MAX_KERNEL - 1; ago > 0; ago--)
            u[ago] = u[ago - 1];
        if (p.args.flags & CONV_SILU)
            sum = sum / (1 + expf(-sum));
        if (p.args.flags & CONV_GATE)
            sum *= p.in[(u64)row * p.args.in_cols + p.args.gate_at + c];
        p.out[(u64)row * p.args.n_channels + c] = sum;
    }
}

// The state behind `row`, of a sequence that begins at `first`. kept: inputs before that, by age.
static __device__ __forceinline__ void give_state(const struct conv_step_params &p, u32 first, u32 row, u32 c,
                                                  const f32 (&kept)[CONV_MAX_KERNEL])
{
    u32 kernel = p.args.kernel_size;
    f32 *state = p.states + (u64)step_states_to(p.step)[row] * p.args.state_words + p.args.state_at + c;

#pragma unroll
    for (u32 ago = 0; ago < CONV_MAX_KERNEL - 1; ago++) { // before the row behind this one
        if (ago + 1 >= kernel)
            break;
        f32 u = 0;
        if (ago <= row - first)
            u = input_of(p, row - ago, c);
        else
            for (u32 i = 1; i < CONV_MAX_KERNEL; i++)
                u = i == ago - (row - first) ? kept[i] : u;
        state[(kernel - 2 - ago) * p.args.n_channels] = u;
    }
}

// The states behind the rows of the sequence that begins at `first`.
static __device__ void give_states(const struct conv_step_params &p, u32 first, u32 c)
{
    bool inside = c < p.args.n_channels;
    u32 from = step_states_from(p.step)[first];
    f32 kept[CONV_MAX_KERNEL]; // before the first row: one of the rows below may be written over it

    for (u32 ago = 1; ago < CONV_MAX_KERNEL; ago++)
        kept[ago] = ago < p.args.kernel_size && inside ? kept_of(p, from, ago, c) : 0;
    if (inside && step_states_to(p.step)[first] != STATE_NONE)
        give_state(p, first, first, c, kept);
    for (u32 row = first + 1;; row += 32 * AHEAD) {
        bool next[AHEAD], keep[AHEAD];
#pragma unroll
        for (u32 i = 0; i < AHEAD; i++) {
            u32 at = row + 32 * i + (threadIdx.x & 31);
            next[i] = sequence_goes_on(p.step, at);
            keep[i] = next[i] && step_states_to(p.step)[at] != STATE_NONE;
        }
#pragma unroll
        for (u32 i = 0; i < AHEAD; i++) {
            u32 ends = ~__ballot_sync(~0u, next[i]), keeps = __ballot_sync(~0u, keep[i]);
            for (keeps &= (ends & -ends) - 1; keeps && inside; keeps &= keeps - 1)
                give_state(p, first, row + 32 * i + (u32)__ffs((int)keeps) - 1, c, kept);
            if (ends)
                return;
        }
    }
}

extern "C" __global__ void __launch_bounds__(128)
    conv_step_states(const __grid_constant__ struct conv_step_params p)
{
    u32 c = blockIdx.x * 128 + threadIdx.x, first,
        begins = sequence_begins_of(p.step, blockIdx.y, p.n_single, first);

    wait_for_inputs();
    for (; begins; begins &= begins - 1)
        give_states(p, first + (u32)__ffs((int)begins) - 1, c);
}
