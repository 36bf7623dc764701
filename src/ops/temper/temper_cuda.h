// temper_cuda.h - the arguments of the CUDA kernel.
#pragma once
#include "base/lang.h"
#include "ops/temper/temper.h"

struct temper_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) in;
    DEVICE_AT(f32) out;
    struct temper_args args;
};
