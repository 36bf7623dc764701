// conv_step.metal - the operation as defined in conv_step.h: a thread takes a channel of a row. The states
// are read by all rows near a sequence's beginning, so another launch writes them.
#include "device/metal/msl.h"
#include "ops/conv_step/conv_step.h"

constant u32 HAS_BIAS [[function_constant(0)]];

inline f32 input_of(constant struct conv_step_args &args, device const f32 *in, u32 row, u32 c)
{
    in += u64(row) * args.in_cols + c;
    return args.flags & CONV_FACTOR ? in[args.at] * in[args.factor_at] : in[args.at];
}

// Input `ago` rows before the beginning of a sequence's rows in this step; ago from 1 to K - 1.
inline f32 kept_of(constant struct conv_step_args &args, device const f32 *states, u32 from, u32 ago, u32 c)
{
    if (from == STATE_ZERO)
        return 0.0f;
    return states[u64(from) * args.state_words + args.state_at +
                  (args.kernel_size - 1 - ago) * args.n_channels + c];
}

kernel void conv_step(constant struct conv_step_args &args [[buffer(0)]],
                      constant struct step &step [[buffer(1)]], device const f32 *in [[buffer(2)]],
                      device const f32 *w [[buffer(3)]], device const f32 *bias [[buffer(4)]],
                      device const f32 *states [[buffer(5)]], device f32 *out [[buffer(6)]],
                      uint3 tile [[threadgroup_position_in_grid]],
                      uint thread_index [[thread_index_in_threadgroup]])
{
    u32 c = tile.x * 128 + thread_index, row = tile.y, n_above = 0, n = args.kernel_size;

    if (row >= step.n_rows || c >= args.n_channels)
        return;
    constant u32 *froms = step_states_from(&step);
    while (n_above + 1 < n && froms[row - n_above] == STATE_NEXT)
        n_above++;
    f32 sum = 0.0f;
    if (HAS_BIAS)
        sum = bias[c];
    for (u32 j = 0; j < n; j++) {
        u32 ago = n - 1 - j;
        f32 u = ago <= n_above ? input_of(args, in, row - ago, c)
                               : kept_of(args, states, froms[row - n_above], ago - n_above, c);
        sum += w[u64(c) * n + j] * u;
    }
    if (args.flags & CONV_SILU)
        sum = sum / (1.0f + exp(-sum));
    if (args.flags & CONV_GATE)
        sum *= in[u64(row) * args.in_cols + args.gate_at + c];
    out[u64(row) * args.n_channels + c] = sum;
}

kernel void conv_step_states(constant struct conv_step_args &args [[buffer(0)]],
                             constant struct step &step [[buffer(1)]], device const f32 *in [[buffer(2)]],
                             device f32 *states [[buffer(5)]], uint3 tile [[threadgroup_position_in_grid]],
                             uint thread_index [[thread_index_in_threadgroup]])
{
    u32 c = tile.x * 128 + thread_index, first = tile.y, n = args.kernel_size;

    if (first >= step.n_rows || c >= args.n_channels)
        return;
    constant u32 *froms = step_states_from(&step), *tos = step_states_to(&step);
    if (froms[first] == STATE_NEXT)
        return;
    f32 kept[CONV_MAX_KERNEL]; // before the first row, by age: a row below may be written over it
    UNROLL for (u32 ago = 1; ago < CONV_MAX_KERNEL; ago++) kept[ago] =
        ago < n ? kept_of(args, states, froms[first], ago, c) : 0.0f;
    for (u32 row = first; row < step.n_rows && (row == first || froms[row] == STATE_NEXT); row++) {
        if (tos[row] == STATE_NONE)
            continue;
        device f32 *state = states + u64(tos[row]) * args.state_words + args.state_at + c;
        UNROLL for (u32 ago = 0; ago < CONV_MAX_KERNEL - 1; ago++)
        { // before the row behind this one
            f32 u = 0.0f;
            if (ago + 1 < n && ago <= row - first)
                u = input_of(args, in, row - ago, c);
            UNROLL for (u32 i = 1; i < CONV_MAX_KERNEL; i++) u =
                ago > row - first && i == ago - (row - first) ? kept[i] : u;
            if (ago + 1 < n)
                state[(n - 2 - ago) * args.n_channels] = u;
        }
    }
}
