// attend_metal.h - the arguments of the attention kernels of the Metal device. Shared by C and MSL.
#pragma once
#include "ops/attend/attend.h"

struct attend_metal_args {
    struct attend_args attend;
    u32 n_splits, split_pages; // attend_split: how many parts a row's past may have, and pages in each
};
STATIC_ASSERT(sizeof(struct attend_metal_args) == 40);

// Function constants.
enum { ATTEND_C_HEAD_DIM, ATTEND_C_K_FORMAT, ATTEND_C_V_FORMAT, ATTEND_C_SINKS, ATTEND_N_CONSTANTS };

// Tiles.
enum {
    ATTEND_MAX_DIM = 256,  // attend_split: of a head
    ATTEND_TILE_DIM = 128, // attend_many
    ATTEND_TILE_ROWS = 32, // attend_many: rows of the step in a threadgroup, eight for each two simdgroups
    ATTEND_HEADS = 4,      // attend_split: query heads that share a read of K and V
};
