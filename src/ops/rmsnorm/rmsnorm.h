// rmsnorm: out[r][c] = in[r][c] * scale[c] / sqrt(mean over c of in[r][c]^2 + eps)      (Zhang and Sennrich,
// 2019)
//
// With more: out = (that + add[r][c]) * gain, for norms behind a product and its residual. A row may be
// several groups of n_cols, each normalised by itself with the same scale. Without scale it is 1. One group
// at a time. Squares are summed in fp32 in an order that depends on n_cols alone, so a row's result does not
// depend on how many rows share the step. in, add and out may be the same tensor. Limits: n_cols from 1 to
// 65,536; eps > 0.
#pragma once
#include "base/lang.h"

struct rmsnorm_args { // shared by C, CUDA and MSL
    u32 n_cols, n_groups;
    f32 eps;
    u32 rows; // enum tensor_rows
    f32 gain;
    u32 reserved;
};
STATIC_ASSERT(sizeof(struct rmsnorm_args) == 24);

// Operand numbers, for the kernels. SCALE and ADD may be absent.
enum { RMSNORM_IN, RMSNORM_SCALE, RMSNORM_ADD, RMSNORM_OUT };

#ifdef HOST_C
#include "device/tape.h"

struct rmsnorm {
    struct tensor out, in;      // [rows, n_groups * n_cols]
    const struct weight *scale; // [n_cols] fp32, or NULL
    struct tensor add;          // [rows, n_groups * n_cols], or id 0
    uint32_t n_groups;          // 0: 1
    float eps, gain;            // gain 0: 1
};
void op_rmsnorm(struct tape *t, struct rmsnorm n);

// The row's loop, shared with the fused operations' plain kernels. in and out may be equal.
void rmsnorm_row_plain(const float *in, const float *scale, float *out, uint32_t n_cols, float eps);
#endif
