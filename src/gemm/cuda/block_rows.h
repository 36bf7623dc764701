// block_rows.h - partitions a matrix's rows over the blocks of a launch. A block keeps its rows in shared
// memory, plane by plane as in weight_layout.h. Shared by C and CUDA.
#pragma once
#include "gemm/cuda/weight_layout.h"

enum { BLOCK_ROWS_GROUP = 8 }; // rows are dealt by eights: then a plane's part begins at 16 bytes

struct block_rows {
    u32 each, more; // groups of eight rows of a block; the first `more` blocks have one more
    u32 plane[4];   // byte offset of each plane in the block's shared memory
    u32 row[4];     // bytes of a row in each plane
    u32 row_bytes;  // of a row in all planes
};

#ifdef HOST_C
#include "base/divide.h"

// Returns the shared memory of a block, in bytes: of one with the most rows.
static inline u32 block_rows_deal(struct block_rows *r, u32 format, u32 n_rows, u32 n_cols, u32 n_blocks)
{
    const u64 bytes[4] = { layout_quants_bytes(format, n_cols), layout_high_bytes(format, n_cols),
                           layout_scales_bytes(format, n_cols), layout_deltas_bytes(format, n_cols) };
    u32 n = n_rows / BLOCK_ROWS_GROUP, most = BLOCK_ROWS_GROUP * divide_up(n, n_blocks);

    *r = (struct block_rows){ .each = n / n_blocks, .more = n % n_blocks };
    for (u32 i = 0; i < 4; i++) {
        r->plane[i] = most * r->row_bytes;
        r->row[i] = (u32)bytes[i];
        r->row_bytes += (u32)bytes[i];
    }
    return most * r->row_bytes;
}

// Bytes of a row of activations, as struct row_int8.
static inline u32 block_rows_activations(u32 n_cols)
{
    return divide_up(n_cols / 32 * 44, 128) * 128;
}
#endif
