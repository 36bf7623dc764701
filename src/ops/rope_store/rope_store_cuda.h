// rope_store_cuda.h - the arguments of the CUDA kernel, for rope_store and for qkv with head norms.
#pragma once
#include "base/lang.h"
#include "ops/rope_store/rope_store.h"

struct rope_store_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(f32) q;
    DEVICE_AT(f32) k;
    DEVICE_AT(const f32) v;
    DEVICE_AT(const f32) q_norm;
    DEVICE_AT(const f32) k_norm;
    DEVICE_AT(const f32) angles;
    DEVICE_AT(void) k_pages;
    DEVICE_AT(void) v_pages;
    DEVICE_AT(const u32) table;
    struct rope_store_args args;
};

enum { ROPE_FEW_THREADS = 128 }; // of rope_store_few: for heads of four times as many dims at most

#ifdef HOST_C
#include "device/cuda/cuda.h"

void rope_store_launch(struct cuda_plan *p, const struct rope_store_params *params);
#endif
