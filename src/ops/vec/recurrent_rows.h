// recurrent_rows.h - a row of the operations that carry a state, and of the gated norm behind them, as the
// kernels of row_kernels.h take it.
#pragma once
#include <stdbool.h>
#include "ops/conv_step/conv_step.h"
#include "ops/scan/scan.h"

// Some channels of a row, and what the rows before it left of them.
enum { CONV_TILE = 64 };
struct conv_row {
    const float *in, *factor, *gate, *bias; // [n]; factor, gate and bias may be NULL
    float *out;
    uint32_t n, kernel;
    bool silu;
    float w[CONV_MAX_KERNEL][CONV_TILE]; // [kernel]
    float (*past)[CONV_TILE];            // [kernel - 1] inputs of the rows before; moved on by one row
};

// Some columns of a head's state, and a row that moves them on.
enum { SCAN_TILE = 32 };
struct scan_row {
    const float *q, *k;        // [d_k]
    const float *v;            // [n]
    float *out;                // [n]
    float (*state)[SCAN_TILE]; // [d_k]; all columns are numbers
    uint32_t d_k, n;
    bool delta;
    float decay, factor, skip; // factor: of the rule, or of v
};

struct gated_norm_group {
    const float *in, *gate, *scale; // [n]; scale: NULL, no norm
    float *out;
    uint32_t n;
    bool gate_first, sigmoid;
    float eps;
};
