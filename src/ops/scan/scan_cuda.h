// scan_cuda.h - the arguments and sizes of the CUDA kernels.
#pragma once
#include "device/step.h"
#include "ops/scan/scan.h"

#define SCAN_COLUMNS 32u // of a state, to a block

struct scan_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) in;
    DEVICE_AT(const f32) dt;
    DEVICE_AT(const f32) beta;
    DEVICE_AT(const f32) a;
    DEVICE_AT(const f32) dt_bias;
    DEVICE_AT(const f32) d;
    DEVICE_AT(f32) states;
    DEVICE_AT(f32) out;
    struct scan_args args;
};
