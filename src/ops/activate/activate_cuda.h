// activate_cuda.h - the arguments of the CUDA kernel.
#pragma once
#include "ops/activate/activate.h"
#include "base/lang.h"

struct activate_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) gate;
    DEVICE_AT(const f32) up;
    DEVICE_AT(f32) out;
    struct activate_args args;
};
