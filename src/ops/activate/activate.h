// activate: out[r][c] = f(gate[r][c]) * up[r][c]      f = SiLU: x / (1 + exp(-x)), or GELU in its tanh form
//
// Without up the factor is 1. gate and out may be the same tensor.
#pragma once
#include "base/lang.h"
#include "gemm/gemm.h"

struct activate_args {
    u32 n_cols;
    u32 activation; // enum activation
    u32 gated;      // there is an up
    u32 reserved;
};
STATIC_ASSERT(sizeof(struct activate_args) == 16);

#ifdef HOST_C
#include "device/tape.h"

struct activate {
    struct tensor out, gate, up; // [rows, n_cols]; up may be id 0
    enum activation activation;
};
void op_activate(struct tape *t, struct activate a);
float activate_plain(enum activation a, float x);
#endif
