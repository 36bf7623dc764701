// scale_add_cuda.h - the arguments of the CUDA kernel.
#pragma once
#include "device/step.h"
#include "ops/scale_add/scale_add.h"

struct scale_add_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) in;
    DEVICE_AT(const f32) scale;
    DEVICE_AT(const f32) add;
    DEVICE_AT(f32) out;
    struct scale_add_args args;
};
