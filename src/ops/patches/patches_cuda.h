// patches_cuda.h - the arguments of the CUDA kernels.
#pragma once
#include "gemm/cuda/packing.h"
#include "ops/patches/patches.h"

struct patches_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const u8) pixels;
    DEVICE_AT(const f32) table;
    DEVICE_AT(f32) out; // or none
    struct packed_out packed_out;
    struct patches_args args;
};
enum { PATCHES_THREADS = 256 };
