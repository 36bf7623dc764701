// trellis_cuda.h - the arguments of the CUDA kernels.
#pragma once
#include "device/step.h"
#include "ops/trellis/trellis.h"

enum {
    TRELLIS_WARPS = 8,
    TRELLIS_SHARERS = 4,      // warps that share a tile's columns
    TRELLIS_TILES = 4,        // of 16 outputs, of a warp: half of a block's outputs
    TRELLIS_ROWS = 16,        // of activations, of a block
    TRELLIS_MOST_BLOCKS = 16, // of 128 columns, of a block
    TRELLIS_EXPAND_THREADS = 256
};

struct trellis_params { // trellis.cu
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const u16) codes;
    DEVICE_AT(const u16) suh;
    DEVICE_AT(const u16) svh;
    DEVICE_AT(const f32) in;
    DEVICE_AT(const f32) bias; // or none
    DEVICE_AT(const f32) add;  // or none
    DEVICE_AT(f32) out;
    DEVICE_AT(f32) partial; // [groups of rows][n_splits][16][n_out], where there are splits
    DEVICE_AT(u32) arrived; // [groups of rows][n_out / 128], zero between launches
    u32 n_in, n_out;        // padded
    u32 n_cols, n_rows;     // of the matrix
    u32 rows;               // enum tensor_rows
    u32 split_blocks;       // blocks of 128 columns of a split
    u32 n_splits;
    u32 reserved;
};

struct trellis_expand_params { // trellis_expand.cu: rows of the matrix that activations are multiplied with
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const u16) codes;
    DEVICE_AT(const u16) suh;
    DEVICE_AT(const u16) svh;
    DEVICE_AT(u8) to; // [n_rows, n_cols] of BF16, or F32
    u32 n_in, n_out;
    u32 n_cols;
    u32 first, n_rows; // first: a multiple of 128
    u32 bits, codebook, exact;
};

// Shared memory of a block of trellis.cu: scales, and the warps' rings of codes and the rows, whose place the
// warps' sums take at the end.
SHARED_INLINE u32 trellis_depth(u32 bits) // stages of a ring
{
    return bits <= 4 ? 8 : 4;
}
SHARED_INLINE u32 trellis_ring_bytes(u32 bits) // of all warps
{
    return TRELLIS_WARPS * trellis_depth(bits) * TRELLIS_TILES * 32 * bits;
}
SHARED_INLINE u32 trellis_lane_bytes(u32 codebook) // of eight rows' part of a tile's activations
{
    return codebook == EXL3_MUL1 ? 4 : 8;
}
SHARED_INLINE u32 trellis_scales_bytes(u32 split_blocks, u32 eights)
{
    return (split_blocks * eights * 8 * 8 + 15) / 16 * 16;
}
SHARED_INLINE u32 trellis_shared_bytes(u32 bits, u32 codebook, u32 split_blocks, u32 eights)
{
    u32 rows = split_blocks * 8 * 32 * trellis_lane_bytes(codebook) * eights,
        codes = trellis_ring_bytes(bits) + rows, sums = TRELLIS_SHARERS * eights * 8 * EXL3_BLOCK * 4;
    return trellis_scales_bytes(split_blocks, eights) + (codes > sums ? codes : sums);
}
