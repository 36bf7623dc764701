// activate: out[r][c] = f(gate[r][c]) * up[r][c]      f = SiLU: x / (1 + exp(-x)), or GELU in its tanh form
//
// gate and out may be the same tensor.
#pragma once
#include "base/lang.h"
#include "gemm/gemm.h"

struct activate_args {
    u32 n_cols;
    u32 activation; // enum activation
};
STATIC_ASSERT(sizeof(struct activate_args) == 8);

#ifdef HOST_C
#include "device/tape.h"

struct activate {
    struct tensor out, gate, up; // [rows, n_cols]
    enum activation activation;
};
void op_activate(struct tape *t, struct activate a);
float activation_plain(enum activation a, float x);
#endif
