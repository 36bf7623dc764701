// lora_cuda.h - the arguments of the CUDA kernels.
#pragma once
#include "device/step.h"
#include "ops/lora/lora.h"

enum {
    LORA_DOWN_THREADS = 256,
    LORA_UP_THREADS = 64,
    LORA_LEAST_MANY = 16, // rows that a tape can get
    LORA_MANY_RANKS = 2,
    LORA_DOWN_ROWS = 8,
    LORA_UP_ROWS = 8,
};

struct lora_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) in;
    DEVICE_AT(const f32) scales;
    DEVICE_AT(f32) work;
    DEVICE_AT(const f32) a[LORA_TARGETS];
    DEVICE_AT(const f32) b[LORA_TARGETS];
    DEVICE_AT(const u32) owners[LORA_TARGETS];
    DEVICE_AT(f32) out[LORA_TARGETS];
    struct lora_args args;
};
