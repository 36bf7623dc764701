// angles_cuda.h - the arguments of the CUDA kernel.
#pragma once
#include "ops/angles/angles.h"
#include "base/lang.h"

struct angles_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) frequencies;
    DEVICE_AT(f32) out;
    struct angles_args args;
};
