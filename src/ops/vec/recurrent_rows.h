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

// What a row tells of a head's state, the same for all its columns.
struct scan_gates {
    float decay, factor;      // factor: of the rule, or of v
    float q_factor, k_factor; // of q and k as they lie in memory
    float qk;                 // q^T k, with both factors
};

// Some columns of a head's state, and a row that moves them on. The vector kernels leave what a row adds to
// the state until the next row reads it, so that a row takes one walk over the state: with written,
// S = last_decay S + last_k last^T is still to be done.
enum { SCAN_TILE = 32 };
struct scan_row {
    const float *q, *k;        // [d_k]
    const float *v;            // [n]
    float *out;                // [n]
    float (*state)[SCAN_TILE]; // [d_k]; all columns are numbers
    uint32_t d_k, n;
    bool delta;
    float skip;
    struct scan_gates gates;
    bool written;
    const float *last_k;
    float last_decay, last[SCAN_TILE];
};

struct gated_norm_group {
    const float *in, *gate, *scale; // [n]; scale: NULL, no norm
    float *out;
    uint32_t n;
    bool gate_first, sigmoid;
    float eps;
};
