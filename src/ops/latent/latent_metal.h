// latent_metal.h - the arguments and the geometry of the Metal kernels. Shared by C and MSL.
#pragma once
#include "gemm/metal/product_metal.h"
#include "ops/latent/latent.h"

struct latent_project_metal_args {
    struct product_args product; // of one head's matrix
    struct latent_project_args project;
    u32 tile_rows;
    u32 reserved[3];
};
STATIC_ASSERT(sizeof(struct latent_project_metal_args) == 128);

struct latent_attend_metal_args {
    struct attend_args attend;
    u32 n_splits, split_pages; // parts a row's past may have, and pages in each
};
STATIC_ASSERT(sizeof(struct latent_attend_metal_args) == 40);

// Function constants of latent_attend.metal.
enum { LATENT_C_KEY, LATENT_C_DIMS, LATENT_C_FORMAT, LATENT_N_CONSTANTS };

enum {
    LATENT_THREADS = 128,  // of each kernel here
    LATENT_HEADS = 8,      // that a threadgroup of latent_attend computes: two a simdgroup
    LATENT_MAX_DIMS = 512, // of a latent: four a thread
    LATENT_MAX_KEY = 768,  // LATENT_HEADS queries in 24 KiB of threadgroup memory
};
