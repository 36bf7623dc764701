// gate_up: norm, two products and the activation of a gated feed-forward block (SwiGLU; Shazeer, 2020).
//
//   n = rmsnorm(in) * norm;  out = f(n Wgate^T) * (n Wup^T)
// Parts: rmsnorm, matmul x 2, activate. See their headers for formulas and limits; exact as in matmul. With
// what adapters add to both products it is gate_up_adapted; in parts a lora stands before activate.
#pragma once
#include "base/lang.h"
#include "ops/lora/lora.h"
#include "ops/activate/activate.h"

struct gate_up_args {
    u32 n_cols, n_out;
    f32 eps;
    u32 activation; // enum activation
    u32 exact;
    u32 reserved;
};
STATIC_ASSERT(sizeof(struct gate_up_args) == 24);

enum { GATE_UP_IN, GATE_UP_NORM, GATE_UP_GATE, GATE_UP_UP, GATE_UP_WORK, GATE_UP_OUT, GATE_UP_ADAPTERS };

struct gate_up_adapted_args {
    struct gate_up_args product;
    struct adapted_args adapters;
};
STATIC_ASSERT(sizeof(struct gate_up_adapted_args) == 40);

// Columns (of 4 bytes) of workspace per row: the normalised row and its packings for at most two activation
// formats.
SHARED_INLINE u32 gate_up_work_cols(u32 n_cols)
{
    return 3 * n_cols + 128;
}

#ifdef HOST_C
struct gate_up {
    struct tensor out;              // [rows, n_out]
    struct tensor in;               // [rows, n_cols]
    const struct weight *norm;      // [n_cols] fp32; NULL: n = in, recorded in parts
    const struct weight *gate, *up; // [n_out, n_cols]
    enum activation activation;
    float eps;
};
void op_gate_up(struct tape *t, struct gate_up g);
#endif
