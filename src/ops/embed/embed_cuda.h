// embed_cuda.h - the arguments of the CUDA kernel.
#pragma once
#include "ops/embed/embed.h"
#include "gemm/cuda/weight_layout.h"

struct embed_params {
    DEVICE_AT(const struct step) step;
    struct weight_planes table;
    DEVICE_AT(const u32) history;
    DEVICE_AT(const f32) pool;
    DEVICE_AT(f32) out;
    struct embed_args args;
};
