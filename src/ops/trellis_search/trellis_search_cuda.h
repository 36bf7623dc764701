// trellis_search_cuda.h - the arguments of the CUDA kernels.
#pragma once
#include "device/step.h"
#include "ops/trellis/trellis_cuda.h"
#include "ops/trellis_search/trellis_search.h"

enum {
    TRELLIS_WANTED_OUTPUTS = 32, // of a block of trellis_search_wanted
    TRELLIS_WANTED_THREADS = TRELLIS_SEARCH_SUMS * 32
};

struct trellis_search_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) w;
    DEVICE_AT(const f32) l;
    DEVICE_AT(f32) missed;
    DEVICE_AT(u32) codes;
    DEVICE_AT(f32) wanted; // [matrices, 16, n_out]
    DEVICE_AT(u8) choices; // [blocks, 256, 65536 >> bits]
    DEVICE_AT(f32) costs;  // [blocks, 2, 65536 >> bits], where they have no room in shared memory
    u32 n_in, n_out;
    u32 factor, more; // of the codebook, but of MUL1: factor 0
};

TRELLIS_CONSTANT u32 trellis_search_threads(u32 bits) // more would have too few registers for the values
{
    return bits == 8 ? 256 : 512;
}
