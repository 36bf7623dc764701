// scatter_cuda.h - the arguments of the CUDA kernel.
#pragma once
#include "device/step.h"
#include "ops/scatter/scatter.h"

struct scatter_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) in;
    DEVICE_AT(const u32) places;
    DEVICE_AT(f32) pool;
    struct scatter_args args;
};
