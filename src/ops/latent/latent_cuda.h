// latent_cuda.h - the arguments of the CUDA kernels.
#pragma once
#include "gemm/cuda/weight_layout.h"
#include "ops/latent/latent.h"
#include "ops/latent/latent_runs.h"

struct latent_store_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) in;
    DEVICE_AT(const f32) norm;
    DEVICE_AT(const f32) angles;
    DEVICE_AT(void) pages;
    DEVICE_AT(const u32) table;
    struct latent_store_args args;
};

struct latent_project_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) in;
    DEVICE_AT(const f32) angles;
    DEVICE_AT(f32) out;
    struct weight_planes w;
    struct latent_project_args args;
    // blocks of the grid that multiply; of those behind them a block a head rotates, and the last ones store
    u32 n_products, n_stores;
    DEVICE_AT(const struct latent_runs) runs; // rows that are left out, or none
    struct latent_store_params store;
};
enum {
    LATENT_STORE_THREADS = 128,
    LATENT_STORE_ROWS = 8, // of a block of another kernel, about
    LATENT_STORE_MANY_THREADS = 256,
    LATENT_STORE_MANY_ROWS = 16,
    LATENT_PROJECT_THREADS = 128,
    LATENT_PROJECT_LANES = 8,
    LATENT_PROJECT_MANY_THREADS = 256,
    LATENT_PROJECT_TILE = 128, // rows of a head's matrix
    LATENT_PROJECT_FEW_TILE = 32,
    LATENT_PROJECT_FEW_ROWS = 16,
    LATENT_PROJECT_MANY_ROWS = 128
};

struct latent_attend_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) q;
    DEVICE_AT(const void) pages;
    DEVICE_AT(const u32) table;
    DEVICE_AT(f32) out;
    DEVICE_AT(f32) partial; // [rows, heads, n_splits, latent_dims + 2], where a past is split
    struct attend_args args;
    u32 tile_rows, tile_heads; // of a block: their product is at most LATENT_TILE
    u32 n_splits, reserved;
    DEVICE_AT(const struct latent_runs) runs; // of latent_hopper: rows that are left out, or none
};
// The tiled kernel: keys of 576 numbers, values of 512.
enum {
    LATENT_KEY = 576,
    LATENT_VALUE = 512,
    LATENT_TILE = 64, // queries of a block, and keys that it takes at once
    LATENT_ATTEND_THREADS = 256,
    LATENT_PLAIN_KEYS = 128,
    LATENT_MERGE_THREADS = 128,
    LATENT_MOST_SPLITS = 64,
    LATENT_FEW_PARTS = 4, // latent_few: warps that share a page
    LATENT_FEW_THREADS = 512,
    LATENT_FEW_ROWS = 16, // of a tape
    LATENT_TILE_BYTES = LATENT_TILE * LATENT_KEY * 2,
    // queries, two tiles of keys, weights, factors
    LATENT_SHARED_BYTES = 3 * LATENT_TILE_BYTES + LATENT_TILE * LATENT_TILE * 2 + 4 * LATENT_TILE * 4,
    LATENT_HOPPER_THREADS = 384,
    LATENT_HOPPER_BYTES = LATENT_SHARED_BYTES - LATENT_TILE * 4 // one factor less
};

#ifdef HOST_C
#include "device/cuda/cuda.h"

// The launches of a command that is latent_qk, latent_attend or latent_project. Blocks whose rows are all of
// one of `runs` (a device address, or 0) leave them out; of latent_attend where latent_attend_hopper says so.
// With runs, latent_qk is of many rows, and its keys have 576 numbers in pages of F16.
void latent_qk_launch(struct cuda_plan *p, u64 runs);
void latent_attend_launch(struct cuda_plan *p, u64 runs);
void latent_project_launch(struct cuda_plan *p, u64 runs);
bool latent_attend_hopper(const struct cuda_plan *p);
#endif
