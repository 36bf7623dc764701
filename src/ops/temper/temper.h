// temper: out[r][c] = in[r][c] * (1 + beta * ln(1 + floor(position of r / period)))
//
// Queries of models that sharpen attention as a context grows beyond the one they were made for (Llama 4;
// Ministral 3). The factor is 1 in the first period. in and out may be the same tensor.
// Limits: period > 0.
#pragma once
#include "base/lang.h"

struct temper_args { // shared by C, CUDA and MSL
    u32 n_cols;
    u32 period;
    f32 beta;
    u32 reserved;
};
STATIC_ASSERT(sizeof(struct temper_args) == 16);

#ifdef HOST_C
#include "device/tape.h"

struct temper {
    struct tensor out, in; // [rows, n_cols]
    float beta;
    uint32_t period; // tokens
};
void op_temper(struct tape *t, struct temper a);
#endif
