// packing.h - the packings of activations that products of several rows read. Shared by C and CUDA.
//
// A launch of its own writes them (pack_rows.cu), or the operation before, whose result they are
// (epilogue_pack.cuh).
#pragma once
#include "device/step.h"
#include "gemm/gemm.h"
#include "gemm/cuda/weight_layout.h"

// Eight rows of int8 activations, 32 columns: fragments of mma (lane (row, t): elements 4 t .. and 16 + 4 t
// ..), then for each row its scale and the sums of its two halves of 16, 16 bits each.
enum {
    PACKED_INT8_BYTES = 256 + 64,
    PACK_INT8_THREADS = 1024,
    PACK_SPLIT_THREADS = 128,
    PACK_TILES_THREADS = 256,
    PACK_SPLIT_COLUMNS = 8 * PACK_SPLIT_THREADS
};

// One row as bf16, normalised where asked for, in the order of the fragments.
// PACKED_TILE_ROWS: rows of a tile of packed activations, [rows / 128][packed_cols / 64][128 rows][64
// columns].
enum { PACK_BF16_THREADS = 512, PACKED_TILE_ROWS = 128 };

// PACKING_MMA orders each 128 columns as fragments.cuh multiplies them: the place of a column.
SHARED_INLINE u32 packed_mma_column(u32 c)
{
    return c / 128 * 128 + (c / 4 % 4 * 2 + c / 16 % 2) * 16 + c % 2 * 8 + c / 32 % 4 * 2 + c / 2 % 2;
}

// PACKING_INT8_TILES: [rows / 128][n_cols / 128] chunks of [128 rows][128 columns], 16-byte words of a line
// swizzled by the row, then [2][128 rows] fp32 scales, each of 64 columns of a row. PACKING_INT8_WIDE: both
// scales of a row are alike.
enum {
    INT8_CHUNK_COLUMNS = 128,
    INT8_SCALE_COLUMNS = 64,
    INT8_CHUNK_NUMBERS = PACKED_TILE_ROWS * INT8_CHUNK_COLUMNS,
    INT8_CHUNK_SCALES = PACKED_TILE_ROWS * INT8_CHUNK_COLUMNS / INT8_SCALE_COLUMNS * 4,
    INT8_CHUNK_BYTES = INT8_CHUNK_NUMBERS + INT8_CHUNK_SCALES
};
SHARED_INLINE u64 int8_chunk_at(u32 row, u32 column, u32 n_cols)
{
    return ((u64)(row / PACKED_TILE_ROWS) * (n_cols / INT8_CHUNK_COLUMNS) + column / INT8_CHUNK_COLUMNS) *
           INT8_CHUNK_BYTES;
}
SHARED_INLINE u64 int8_tiles_bytes(u32 max_rows, u32 n_cols)
{
    return int8_chunk_at(max_rows + PACKED_TILE_ROWS - 1, 0, n_cols);
}
SHARED_INLINE u32 int8_number_at(u32 row, u32 column) // in its chunk
{
    return row % PACKED_TILE_ROWS * INT8_CHUNK_COLUMNS + (column / 16 % 8 ^ row % 8) * 16 + column % 16;
}
SHARED_INLINE u32 int8_scale_at(u32 row, u32 column)
{
    return INT8_CHUNK_NUMBERS +
           (column / INT8_SCALE_COLUMNS % 2 * PACKED_TILE_ROWS + row % PACKED_TILE_ROWS) * 4;
}

struct packing_params { // of pack_mma, pack_int8, pack_int8_split, pack_bf16, pack_int8_tiles
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) in;
    DEVICE_AT(const f32) norm;
    DEVICE_AT(u8) out;
    DEVICE_AT(f32) squares; // pack_int8_split: [n_cols / 32][8 rows]
    u32 n_cols, packed_cols, rows;
    u32 tiled; // 1: in tiles of 8 rows, as mma reads them from memory; 0: in tiles of PACKED_TILE_ROWS, for
               // shared memory
    f32 eps;
    u32 wide; // pack_int8_tiles: PACKING_INT8_WIDE
};

// Do tiles with the same activations follow each other, or those with the same weights? What is larger is
// read from memory once, unless L2 keeps the activations anyway.
enum { KEPT_BYTES = 16 << 20 };
SHARED_INLINE u32 gemm_rows_first(u32 n_rows, u32 n_weight_rows, u32 n_cols)
{
    return n_rows > n_weight_rows && (u64)n_rows * n_cols * 2 > KEPT_BYTES;
}

// A result that is written, beside its fp32 numbers, as the next product's packed rows; see
// epilogue_pack.cuh.
struct packed_out {
    DEVICE_AT(u8) at; // or none
    // PACKING_INT8 for gemm_int8 alone: the next product's norm, which multiplies the rows, or none.
    DEVICE_AT(const f32) norm;
    DEVICE_AT(f32) squares; // with a norm: [n_cols / 32][8 rows]
    u32 form, n_cols;
};
