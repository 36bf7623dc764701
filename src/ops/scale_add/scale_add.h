// scale_add: out[r][c] = in[r][c] * scale[c] + add[r][c]
//
// A residual with a learned factor for each column (LayerScale; Touvron et al., 2021). out and add may be the
// same tensor.
#pragma once
#include "base/lang.h"

struct scale_add_args { // shared by C, CUDA and MSL
    u32 n_cols;
    u32 reserved;
};
STATIC_ASSERT(sizeof(struct scale_add_args) == 8);

enum { SCALE_ADD_IN, SCALE_ADD_SCALE, SCALE_ADD_ADD, SCALE_ADD_OUT };

#ifdef HOST_C
#include "device/tape.h"

struct scale_add {
    struct tensor out, in, add; // [rows, n_cols]
    const struct weight *scale; // [n_cols] fp32
};
void op_scale_add(struct tape *t, struct scale_add s);
#endif
