// experts_metal.h - the arguments of the Metal kernels, and the table of tiles. Shared by C and MSL.
//
// Entries are the slots of all rows: entry row * (n_slots + 1) + slot, where slot n_slots is the shared
// expert. Rows of one expert that are multiplied together are a tile: experts_tiles sorts the chosen slots by
// expert, then by row, and cuts each expert's into tiles of at most tile_rows.
#pragma once
#include "gemm/metal/product_metal.h"
#include "ops/experts/experts.h"
#include "ops/route/route.h"

struct experts_metal_args {
    struct product_args product; // of this launch's matrices
    struct product_args shared;  // experts_down_slots: of the shared expert's
    u32 n_experts, n_slots, n_ffn, n_shared;
    u32 tile_rows, n_tiles; // most of each
    u32 of_shared;          // the tiles are those of the shared expert: all rows
    u32 has_shared;
    u32 adds; // there is a row to add
    u32 reserved;
};
STATIC_ASSERT(sizeof(struct experts_metal_args) == 200);

// Private memory, in words: the number of tiles, the tiles, the sorted entries.
SHARED_INLINE u32 experts_entries_at(u32 n_tiles)
{
    return 4 + n_tiles * (u32)sizeof(struct listed_tile) / 4;
}

// Geometry of the kernels.
enum {
    EXPERTS_TABLE_THREADS = 256,
    EXPERTS_DOWN_PAIRS = 2, // of a threadgroup of experts_down_slots
    EXPERTS_DOWN_SIMDS = 8, // of it, at most: each takes a slot
    EXPERTS_SUM_THREADS = 128,
};
