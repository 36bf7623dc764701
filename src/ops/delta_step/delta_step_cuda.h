// delta_step_cuda.h - the arguments and sizes of the CUDA kernel.
#pragma once
#include "gemm/cuda/packing.h"
#include "ops/delta_step/delta_step.h"
#include "ops/scan/scan_cuda.h"

#define DELTA_DIM     128u // d_k and d_v
#define DELTA_TAPS    4u   // of the convolution
#define DELTA_THREADS 512u // four for each column of a head's state
#define DELTA_ROWS    16u  // of a tape, at most

struct delta_step_params {
    struct scan_params scan; // begins with the step; without `in`
    DEVICE_AT(const f32) in;
    DEVICE_AT(const f32) w;
    DEVICE_AT(const f32) z;
    DEVICE_AT(const f32) scale;
    DEVICE_AT(u32)
    arrived; // [rows, key heads]: blocks that have read the convolution's state; zero between
             // launches
    struct packed_out packed_out;
    struct conv_step_args conv;
    u32 z_cols, z_at, scale_step;
    f32 eps;
};
