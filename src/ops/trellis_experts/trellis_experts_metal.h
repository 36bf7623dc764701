// trellis_experts_metal.h - the arguments of the Metal kernels. Shared by C and MSL.
//
// A slot of a row is an entry, row * n_slots + slot. Of many rows the entries of one expert are multiplied
// together, eight at most: experts_tiles (ops/experts) makes the table of such tiles.
#pragma once
#include "ops/trellis/trellis_metal.h"
#include "ops/trellis_experts/trellis_experts.h"

struct trellis_experts_metal_args {
    struct trellis_experts_args op;
    u32 n_tiles; // most of the table; 0: a step of one row, whose slots are the tiles
    u32 has_shared, adds;
    u32 reserved[3];
};
STATIC_ASSERT(sizeof(struct trellis_experts_metal_args) == 80);

enum { TRELLIS_EXPERTS_MSL_SUM_THREADS = 128 };

// Where the workspace's second part begins, in numbers of a slot: see trellis_experts_work_cols.
SHARED_INLINE u32 trellis_experts_up_cols(u32 n_cols)
{
    return 2 * exl3_padded(n_cols);
}
