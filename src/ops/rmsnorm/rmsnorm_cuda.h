// rmsnorm_cuda.h - the arguments of the CUDA kernel.
#pragma once
#include "base/lang.h"
#include "ops/rmsnorm/rmsnorm.h"

struct rmsnorm_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) in;
    DEVICE_AT(const f32) scale; // or 0
    DEVICE_AT(const f32) add;   // or 0
    DEVICE_AT(f32) out;
    struct rmsnorm_args args;
};
