// activate: out[r][c] = f(gate[r][c]) * up[r][c]
//
// f is SiLU: x / (1 + exp(-x)), GELU: x / 2 * (1 + erf(x / sqrt(2))), GELU in its tanh form, ReLU: max(x, 0),
// or limit * tanh(x / limit). Without up the factor is 1. up may be some of the columns of a wider tensor.
// gate, up and out may be the same tensor: ReLU of x times x is its square.
#pragma once
#include "base/lang.h"
#include "gemm/gemm.h"

struct activate_args {
    u32 n_cols;
    u32 activation;        // enum activation
    u32 gated;             // there is an up
    u32 rows;              // enum tensor_rows
    u32 up_cols, up_first; // columns of up's rows, and the first that is used
    f32 limit;             // of ACTIVATION_CAP
    u32 reserved;
};
STATIC_ASSERT(sizeof(struct activate_args) == 32);

#ifdef HOST_C
#include "device/tape.h"

struct activate {
    struct tensor out, gate, up; // [rows, n_cols]; up may be id 0, or have more columns
    enum activation activation;
    uint32_t up_first; // column of up
    float limit;       // of ACTIVATION_CAP
};
void op_activate(struct tape *t, struct activate a);
float activate_plain(enum activation a, float x);
#endif
