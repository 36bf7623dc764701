// conv_step_cuda.h - the arguments of the CUDA kernels.
#pragma once
#include "device/step.h"
#include "ops/conv_step/conv_step.h"

struct conv_step_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) in;
    DEVICE_AT(const f32) w;
    DEVICE_AT(const f32) bias;
    DEVICE_AT(f32) states;
    DEVICE_AT(f32) out;
    struct conv_step_args args;
    u32 n_rows;   // of conv_step: that a block takes
    u32 n_single; // of conv_step_states: sequences.h
};
