// conv_step.cu - the operation as defined in conv_step.h: a thread takes a channel of a row.
//
//   conv_step:         out[r][c] from the K inputs above it           grid: (channels / 128, rows)
//   conv_step_states:  the states behind the rows of a sequence       grid: the same; a sequence's first row
//   works
//
// The states are read by all rows near a sequence's beginning, so another launch writes them. Bound by
// memory.
#include "device/cuda/kernel.cuh"
#include "ops/conv_step/conv_step_cuda.h"

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

extern "C" __global__ void __launch_bounds__(128) conv_step(const __grid_constant__ struct conv_step_params p)
{
    u32 c = blockIdx.x * 128 + threadIdx.x, row = blockIdx.y, kernel = p.args.kernel_size;

    wait_for_inputs();
    if (row >= p.step->n_rows || c >= p.args.n_channels)
        return;
    const u32 *froms = step_states_from(p.step);
    u32 n_above = 0; // rows above of the same sequence
    while (n_above + 1 < kernel && froms[row - n_above] == STATE_NEXT)
        n_above++;
    f32 sum = p.bias ? p.bias[c] : 0;
    for (u32 j = 0; j < kernel; j++) {
        u32 ago = kernel - 1 - j;
        f32 u =
            ago <= n_above ? input_of(p, row - ago, c) : kept_of(p, froms[row - n_above], ago - n_above, c);
        sum += p.w[(u64)c * kernel + j] * u;
    }
    if (p.args.flags & CONV_SILU)
        sum = sum / (1 + expf(-sum));
    if (p.args.flags & CONV_GATE)
        sum *= p.in[(u64)row * p.args.in_cols + p.args.gate_at + c];
    p.out[(u64)row * p.args.n_channels + c] = sum;
}

extern "C" __global__ void __launch_bounds__(128)
    conv_step_states(const __grid_constant__ struct conv_step_params p)
{
    u32 c = blockIdx.x * 128 + threadIdx.x, first = blockIdx.y, kernel = p.args.kernel_size;

    wait_for_inputs();
    if (first >= p.step->n_rows || c >= p.args.n_channels)
        return;
    const u32 *froms = step_states_from(p.step), *tos = step_states_to(p.step);
    if (froms[first] == STATE_NEXT)
        return;
    f32 kept[CONV_MAX_KERNEL]; // before the first row, by age: one of the rows below may be written over it
    for (u32 ago = 1; ago < CONV_MAX_KERNEL; ago++)
        kept[ago] = ago < kernel ? kept_of(p, froms[first], ago, c) : 0;
    for (u32 row = first; row < p.step->n_rows && (row == first || froms[row] == STATE_NEXT); row++) {
        if (tos[row] == STATE_NONE)
            continue;
        f32 *state = p.states + (u64)tos[row] * p.args.state_words + p.args.state_at + c;
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
}
