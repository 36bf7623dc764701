// layernorm_cuda.h - the arguments of the CUDA kernels.
#pragma once
#include "ops/layernorm/layernorm.h"
#include "gemm/cuda/packing.h"

struct layernorm_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) in;
    DEVICE_AT(const f32) scale;
    DEVICE_AT(const f32) bias;
    DEVICE_AT(f32) out; // or none
    struct packed_out packed_out;
    struct layernorm_args args;
};
// LAYERNORM_WARP_FOURS: fours of columns a lane keeps in registers, for rows of up to 32 * 4 * 12 columns.
enum { LAYERNORM_THREADS = 256, LAYERNORM_WARP_FOURS = 12 };
