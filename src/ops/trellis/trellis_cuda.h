// trellis_cuda.h - the arguments of the CUDA kernels.
#pragma once
#include "device/step.h"
#include "ops/trellis/trellis.h"

enum {
    TRELLIS_WARPS = 8,
    TRELLIS_TILES = 4,                                       // of 16 outputs, of a warp
    TRELLIS_ACROSS = EXL3_BLOCK / EXL3_TILE / TRELLIS_TILES, // warps that share a quad's outputs
    TRELLIS_SHARERS = TRELLIS_WARPS / TRELLIS_ACROSS,        // that share the quads
    TRELLIS_ROWS = 16,                                       // of activations, of a block
    TRELLIS_EXPAND_THREADS = 256,
    TRELLIS_HOPPER_THREADS = TRELLIS_WARPS * 32 + 32, // with a warp for epilogues
    TRELLIS_HOPPER_BARRIER_WORDS = 12
};

#ifdef HOST_C
extern const struct trellis_codebook {
    u32 factor, more;  // a state's halves are those of state * factor + more; MUL1: 0
} trellis_codebooks[]; // by enum exl3_codebook
#endif

struct trellis_matrix { // of those that a launch multiplies
    DEVICE_AT(const u16) codes;
    DEVICE_AT(const u16) suh;
    DEVICE_AT(const u16) svh;
    DEVICE_AT(const f32) bias; // or none
    DEVICE_AT(const f32) add;  // or none
    DEVICE_AT(u32) turned;     // [groups of rows][blocks of columns][trellis_record_words], of several rows
    DEVICE_AT(f32) out;
    u32 n_out, n_rows; // padded, of the matrix; n_out 0: there is none
};
struct trellis_params { // trellis.cu
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) in;
    DEVICE_AT(f32) partial; // [groups of rows][n_splits][16][outputs of all], where there are splits
    DEVICE_AT(u32) arrived; // [groups of rows][blocks of 128 outputs], zero between launches
    struct trellis_matrix matrices[TRELLIS_MATRICES];
    u32 n_in, n_cols; // padded, of the matrices
    u32 rows;         // enum tensor_rows
    u32 split_blocks; // blocks of 128 columns of a split
    u32 n_splits;
    u32 blocks_out;   // of 128 outputs of all matrices
    u32 walkers;      // blocks that walk the outputs, of each split: the grid's width
    u32 factor, more; // of the codebook, but of MUL1
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
    u32 bits, exact;
    u32 factor, more; // as above; factor 0: MUL1
};

#ifdef __cplusplus
#define TRELLIS_CONSTANT constexpr SHARED_INLINE
#else
#define TRELLIS_CONSTANT SHARED_INLINE
#endif

// Shared memory of a block of trellis.cu: records, the warps' sums, and their rings of codes. rows: 1, 8 or
// 16, that the kernel is made for.
TRELLIS_CONSTANT u32 trellis_depth(u32 bits) // stages of a ring
{
    return bits <= 2 ? 6 : bits <= 5 ? 3 : 2;
}
// Words from a tile of a quad to the next, so that eight lanes have no bank conflict. Half tiles are 4 * bits
// words apart: at 2, 6 and 8 bits a two-way conflict remains.
TRELLIS_CONSTANT u32 trellis_pitch(u32 bits, bool halves_of_tiles)
{
    return TRELLIS_TILES * 8 * bits + (halves_of_tiles && bits % 2 == 0 ? 4 : 8);
}
TRELLIS_CONSTANT u32 trellis_eights(u32 rows)
{
    return (rows + 7) / 8;
}
TRELLIS_CONSTANT u32 trellis_lanes(u32 rows) // that have activations of their own
{
    return rows == 1 ? 4 : 32;
}
TRELLIS_CONSTANT u32 trellis_lane_words(bool bytes, u32 rows) // of a lane's activations of a quad
{
    return !bytes     ? 8
           : rows > 1 ? 4
                      : 20; // of one row each four times, and four words against bank conflicts
}
// bytes: numbers of the codebook MUL1 are sums of bytes, and activations are rounded to int8; others are
// halves.
//
// A record: the rows' 128 turned numbers of a block of columns, for each quad, eight rows and lane; a scale
// of each row; and what each row's sums are short of.
TRELLIS_CONSTANT u32 trellis_record_numbers(bool bytes, u32 rows) // words
{
    return 2 * trellis_eights(rows) * trellis_lanes(rows) * trellis_lane_words(bytes, rows);
}
TRELLIS_CONSTANT u32 trellis_record_words(bool bytes, u32 rows)
{
    return trellis_record_numbers(bytes, rows) + (rows == 1 ? 4 : 2 * rows);
}
TRELLIS_CONSTANT u32 trellis_shared_bytes(u32 bits, bool bytes, u32 split_blocks, u32 rows)
{
    u32 codes = TRELLIS_WARPS * trellis_depth(bits) * 4 * trellis_pitch(bits, bytes && rows == 1) * 4,
        sums = TRELLIS_SHARERS * rows * EXL3_BLOCK * 4;
    return split_blocks * trellis_record_words(bytes, rows) * 4 + sums + codes;
}
// Whether a stage of trellis_hopper.cu has two quads: of 6 bits two blocks would not fit an SM, 5 bits were
// slower so (3,452 GB/s where 3,617). And its ring's quads.
TRELLIS_CONSTANT bool trellis_pairs(u32 bits)
{
    return bits <= 4;
}
TRELLIS_CONSTANT u32 trellis_hopper_depth(u32 bits)
{
    return trellis_pairs(bits) ? 4 : trellis_depth(bits);
}
// The same of a block of trellis_hopper.cu in a cluster of so many: barriers, twice the sums, and twice those
// of the other blocks.
TRELLIS_CONSTANT u32 trellis_hopper_shared_bytes(u32 bits, u32 split_blocks, u32 cluster)
{
    u32 codes = TRELLIS_WARPS * trellis_hopper_depth(bits) * 4 * trellis_pitch(bits, true) * 4,
        sums = (2 * TRELLIS_SHARERS + 2 * (cluster - 1)) * EXL3_BLOCK * 4;
    return TRELLIS_HOPPER_BARRIER_WORDS * 4 + split_blocks * trellis_record_words(true, 1) * 4 + sums + codes;
}
