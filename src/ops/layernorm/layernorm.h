// layernorm: out[r][c] = (in[r][c] - mean) / sqrt(variance + eps) * scale[c] + bias[c]      (Ba, Kiros,
// Hinton, 2016)
//
// mean and variance are those of row r; the variance is the mean of (in[r][c] - mean)^2, summed in a second
// pass. Sums are fp32, in an order that depends on n_cols alone, so a row's result does not depend on how
// many rows share the step. in and out may be the same tensor.
// Limits: n_cols from 1 to 65,536; eps > 0.
#pragma once
#include "base/lang.h"

struct layernorm_args { // shared by C, CUDA and MSL
    u32 n_cols;
    f32 eps;
    u32 rows; // enum tensor_rows
    u32 reserved;
};
STATIC_ASSERT(sizeof(struct layernorm_args) == 16);

enum { LAYERNORM_IN, LAYERNORM_SCALE, LAYERNORM_BIAS, LAYERNORM_OUT };

#ifdef HOST_C
#include "device/tape.h"

struct layernorm {
    struct tensor out, in;             // [rows, n_cols]
    const struct weight *scale, *bias; // [n_cols] fp32
    float eps;
};
void op_layernorm(struct tape *t, struct layernorm n);
#endif
