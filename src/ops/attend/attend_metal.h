// attend_metal.h - the arguments of the attention kernels of the Metal device, and the parts of a row's
// result that several threadgroups make. Shared by C and MSL.
#pragma once
#include "ops/attend/attend.h"

struct attend_metal_args {
    struct attend_args attend;
    u32 n_splits; // attend_split: how many parts a row's past may have
    u32 reserved;
};
STATIC_ASSERT(sizeof(struct attend_metal_args) == 40);

// Function constants.
enum { ATTEND_C_HEAD_DIM, ATTEND_C_K_FORMAT, ATTEND_C_V_FORMAT, ATTEND_C_SINKS, ATTEND_N_CONSTANTS };

// Tiles.
enum {
    ATTEND_MAX_DIM = 512,   // attend_split: of a head
    ATTEND_TILE_DIM = 256,  // attend_many
    ATTEND_TILE_ROWS = 32,  // attend_many: rows of the step in a threadgroup at most
    ATTEND_MOST_HEADS = 4,  // attend_split: query heads that share a read of K and V
    ATTEND_MOST_SIMDS = 8,  // simdgroups of attend_split
    ATTEND_PAGES = 4,       // attend_split: pages for each simdgroup before a past has another part
    ATTEND_MOST_PARTS = 32, // llama.cpp's vector kernel has as many (nwg in ggml-metal-ops.cpp)
};

// Simdgroups of attend_split, and query heads that share a read of K and V there: the sums of all share 32
// KiB, and a simdgroup keeps its own in registers.
SHARED_INLINE u32 attend_simds(u32 head_dim)
{
    return head_dim <= 128 ? ATTEND_MOST_SIMDS : ATTEND_MOST_SIMDS / 2;
}
SHARED_INLINE u32 attend_heads(u32 head_dim)
{
    return head_dim <= 256 ? ATTEND_MOST_HEADS : ATTEND_MOST_HEADS / 2;
}

// Simdgroups of attend_many that share eight rows, and the rows of its eight simdgroups.
SHARED_INLINE u32 attend_sharers(u32 head_dim)
{
    return head_dim <= 128 ? 2 : 4;
}
SHARED_INLINE u32 attend_tile_rows(u32 head_dim)
{
    return 2 * ATTEND_TILE_ROWS / attend_sharers(head_dim);
}

// Threadgroups that the query heads of one KV head take.
SHARED_INLINE u32 attend_shares(u32 group, u32 head_dim)
{
    return (group + attend_heads(head_dim) - 1) / attend_heads(head_dim);
}

// Parts of one row, in 4-byte words:
//   the number of parts in use, and 3 words of padding
//   of each part: sums [n_cols], then row_max [n_cols / span], row_sum [n_cols / span], padding to 16 bytes
// The result's column c is sum over parts of w[part] * sums[part][c], divided by that of w[part] * row_sum,
// where w[part] = exp(row_max[part] - the largest row_max). The columns of a head share row_max and row_sum;
// they are written for each `span` columns, so that a product can read them that knows of no heads.
enum { ATTEND_PARTS_AT = 4, ATTEND_SPAN = 32 };
// The operand of attend that holds them where the product behind reads them.
enum { ATTEND_PARTS = ATTEND_WORK + 1 };

SHARED_INLINE u32 attend_span(u32 head_dim)
{
    return head_dim % ATTEND_SPAN == 0 ? ATTEND_SPAN : head_dim;
}
SHARED_INLINE u32 attend_part_words(u32 n_cols, u32 span)
{
    return (n_cols + 2 * (n_cols / span) + 3) / 4 * 4;
}
SHARED_INLINE u32 attend_parts_words(u32 n_parts, u32 n_cols, u32 span)
{
    return ATTEND_PARTS_AT + n_parts * attend_part_words(n_cols, span);
}
