// gated_norm_cuda.h - the arguments of the CUDA kernels.
#pragma once
#include "device/step.h"
#include "ops/gated_norm/gated_norm.h"

#define GATED_WIDE_THREADS 256u

struct gated_norm_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) in;
    DEVICE_AT(const f32) z;
    DEVICE_AT(const f32) scale;
    DEVICE_AT(f32) out;
    struct gated_norm_args args;
};
