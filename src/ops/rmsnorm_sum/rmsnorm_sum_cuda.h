// rmsnorm_sum_cuda.h - the arguments of the CUDA kernel.
#pragma once
#include "ops/rmsnorm_sum/rmsnorm_sum.h"

struct rmsnorm_sum_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) a;
    DEVICE_AT(const f32) a_scale;
    DEVICE_AT(const f32) b;
    DEVICE_AT(const f32) b_scale; // or 0
    DEVICE_AT(const f32) scale;
    DEVICE_AT(const f32) add;
    DEVICE_AT(f32) out;
    struct rmsnorm_sum_args args;
};
