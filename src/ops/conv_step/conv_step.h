// conv_step: a causal convolution along each sequence, channel by channel, that carries its last inputs
//
//   u[r][c]   = in[r][at + c] * in[r][factor_at + c]      the factor where CONV_FACTOR is set
//   s[r][c]   = bias[c] + sum over j < K of w[c][j] * u[r - (K - 1) + j][c]      j ascending
//   out[r][c] = f(s[r][c]) * in[r][gate_at + c]           f: SiLU where CONV_SILU is set, else s itself; the
//                                                         gate where CONV_GATE is set
//
// u of rows before the step comes from the state [K - 1][n_channels], oldest first, which lies in a row of
// the layer's states from word state_at on (device/states.h); before a sequence's beginning it is 0. Used by
// the short convolutions of LFM2 (factor and gate), of gated delta nets and Mamba2 (SiLU). Limits: K from 2
// to CONV_MAX_KERNEL; the parts of `in` lie within its columns.
#pragma once
#include "base/lang.h"
#include "device/states.h"

#define CONV_MAX_KERNEL 8u
#define CONV_FACTOR     1u
#define CONV_GATE       2u
#define CONV_SILU       4u

struct conv_step_args {
    u32 n_channels, kernel_size;
    u32 flags;   // CONV_*
    u32 in_cols; // of in: the stride of its rows
    u32 at, factor_at, gate_at;
    u32 state_words, state_at; // of a row of the states; where in it
    u32 reserved;
};
STATIC_ASSERT(sizeof(struct conv_step_args) == 40);

enum { CONV_IN, CONV_W, CONV_BIAS, CONV_STATES, CONV_OUT };

#ifdef HOST_C
#include "device/tape.h"

struct conv_step {
    struct tensor out;         // [rows, n_channels]
    struct tensor in;          // [rows, in_cols]
    const struct weight *w;    // [n_channels * K] fp32, a channel's taps together, the oldest first
    const struct weight *bias; // [n_channels] or NULL
    struct state_rows states;
    uint32_t state_at;               // words
    uint32_t at, factor_at, gate_at; // columns of in
    uint32_t flags;                  // CONV_*
};
void op_conv_step(struct tape *t, struct conv_step c);
// Fills args; false after tape_fail. For operations of which this is a part.
bool conv_step_check(struct tape *t, const struct conv_step *c, struct conv_step_args *args);
// Words of a state.
static inline uint32_t conv_step_words(uint32_t n_channels, uint32_t kernel)
{
    return (kernel - 1) * n_channels;
}
#endif
