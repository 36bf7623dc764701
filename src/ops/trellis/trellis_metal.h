// trellis_metal.h - the geometry of the Metal kernels of products with EXL3 codes. Shared by C and MSL.
//
// A threadgroup takes 128 outputs, which its transform needs together, of at most TRELLIS_MSL_ROWS rows:
// eight simdgroups have 16 outputs each, and as many again the other half of the columns.
#pragma once
#include "quant/exl3.h"

enum {
    TRELLIS_MSL_ROWS = 8,
    TRELLIS_MSL_SHARES = 2,
    TRELLIS_MSL_THREADS = TRELLIS_MSL_SHARES * 8 * 32,
    TRELLIS_MSL_SUMS = TRELLIS_MSL_SHARES * TRELLIS_MSL_ROWS * EXL3_BLOCK, // in threadgroup memory
    TRELLIS_MSL_TURNS = 8, // simdgroups that turn rows, each alone
};
