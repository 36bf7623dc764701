// route_cuda.h - the arguments of the router's CUDA kernels. Shared by C and CUDA.
#pragma once
#include "device/step.h"
#include "gemm/cuda/weight_layout.h"
#include "ops/route/route.h"

enum {
    ROUTE_TILE_ROWS = 8,
    ROUTE_MANY_ROWS = 16, // of a tile of route_logits_many
    ROUTE_MANY_STAGES = 8,
    ROUTE_MANY_SHARED = ROUTE_MANY_STAGES * (ROUTE_MANY_ROWS + 64) * 36 * 4,
    ROUTE_LEAST_MANY = 129, // rows that a tape can get: fewer tiles leave most of the device idle
    ROUTE_THREADS = 256,
    ROUTE_CHOOSE_THREADS = 64,
    ROUTE_MOST_SHARED = 16384 // numbers of a row
};

struct route_params {
    DEVICE_AT(const struct step) step;
    struct weight_planes router;
    DEVICE_AT(const f32) in;   // tapes of one row: not normalised yet; else none
    DEVICE_AT(const f32) norm; // [n_cols]
    DEVICE_AT(f32) normed;
    DEVICE_AT(const f32) bias;         // [n_experts], or none
    DEVICE_AT(const f32) select_bias;  // [n_experts], or none
    DEVICE_AT(const f32) shared_gate;  // [n_cols], or none
    DEVICE_AT(const f32) expert_scale; // [n_experts], or none
    DEVICE_AT(f32) logits;             // [rows, n_experts]
    DEVICE_AT(f32) ids;                // [rows, n_slots]
    DEVICE_AT(f32) weights;            // [rows, n_slots + 1]
    struct route_args args;
};
