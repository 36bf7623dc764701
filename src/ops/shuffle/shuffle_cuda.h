// shuffle_cuda.h - the arguments of the CUDA kernel.
#pragma once
#include "gemm/cuda/packing.h"
#include "ops/shuffle/shuffle.h"

struct shuffle_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) in;
    DEVICE_AT(f32) out; // or none
    struct packed_out packed_out;
    struct shuffle_args args;
};
