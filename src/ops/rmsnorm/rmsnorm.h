// rmsnorm: out[r][c] = in[r][c] * scale[c] / sqrt(mean over c of in[r][c]^2 + eps)      (Zhang and Sennrich,
// 2019)
//
// One row at a time. Squares are summed in fp32 in an order that depends on n_cols alone, so a row's result
// does not depend on how many rows share the step. in and out may be the same tensor.
// Limits: n_cols from 1 to 65,536; eps > 0.
#pragma once
#include "base/lang.h"

struct rmsnorm_args { // shared by C, CUDA and MSL
    u32 n_cols;
    f32 eps;
    u32 rows; // enum tensor_rows
    u32 reserved;
};
STATIC_ASSERT(sizeof(struct rmsnorm_args) == 16);

#ifdef HOST_C
#include "device/tape.h"

struct rmsnorm {
    struct tensor out, in;      // [rows, n_cols]
    const struct weight *scale; // [n_cols] fp32
    float eps;
};
void op_rmsnorm(struct tape *t, struct rmsnorm n);

// The row's loop, shared with the fused operations' plain kernels. in and out may be equal.
void rmsnorm_row_plain(const float *in, const float *scale, float *out, uint32_t n_cols, float eps);
#endif
