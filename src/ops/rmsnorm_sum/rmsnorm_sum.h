// rmsnorm_sum: n = rmsnorm(a) * a_scale + rmsnorm(b) * b_scale;  out = (rmsnorm(n) * scale + add) * gain
//
// What two blocks side by side add to the stream, each through a norm of its own and both through one more
// (Gemma 4's dense block and experts). Without b_scale b is added as it is. Norms as in ops/rmsnorm, whose
// commands are its parts. add and out may be the same tensor. Limits: n_cols as there; eps > 0.
#pragma once
#include "base/lang.h"

struct rmsnorm_sum_args {
    u32 n_cols;
    f32 eps, gain;
    u32 reserved;
};
STATIC_ASSERT(sizeof(struct rmsnorm_sum_args) == 16);

// Operand numbers, for the kernels. B_SCALE may be absent.
enum { SUM_A, SUM_A_SCALE, SUM_B, SUM_B_SCALE, SUM_SCALE, SUM_ADD, SUM_OUT };

#ifdef HOST_C
#include "device/tape.h"

struct rmsnorm_sum {
    struct tensor out, a, b, add;                   // [rows, n_cols], of the step
    const struct weight *a_scale, *b_scale, *scale; // [n_cols] fp32; b_scale or NULL
    float eps, gain;
};
void op_rmsnorm_sum(struct tape *t, struct rmsnorm_sum s);
#endif
