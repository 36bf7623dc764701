// trellis_experts_cuda.h - the arguments of the CUDA kernels.
//
// A slot of a row is an entry, row * n_slots + slot. Rows that are multiplied lie by entry and matrix (gate
// and up, or down): halves of at most 1 in the order of the tensor cores' A operand, with a scale for each
// 128; or, exact, fp32 as they are.
#pragma once
#include "device/step.h"
#include "ops/route/route.h"
#include "ops/trellis/trellis_cuda.h"
#include "ops/trellis_experts/trellis_experts.h"

enum {
    TRELLIS_EXPERTS_WARPS = 8,   // of a block of each kernel
    TRELLIS_EXPERTS_SHARERS = 4, // warps that share the columns of the same 64 outputs
    TRELLIS_EXPERTS_TILES = 4,   // of 16 outputs, of a warp
    // of trellis_experts_hopper.cu:
    TRELLIS_HOPPER_TILES = 2,
    TRELLIS_HOPPER_WARPS = TRELLIS_EXPERTS_WARPS + 1, // one for epilogues
    TRELLIS_BARRIER_WORDS = 8,
};

struct trellis_experts_params { // all but the products
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const u8) stacks[TRELLIS_STACKS];
    DEVICE_AT(const f32) in;
    DEVICE_AT(const f32) ids;
    DEVICE_AT(const f32) weights;
    DEVICE_AT(const f32) shared; // or none
    DEVICE_AT(const f32) add;    // or none
    DEVICE_AT(f32) out;
    DEVICE_AT(u8) of_up; // rows that gate and up multiply, and their scales
    DEVICE_AT(f32) up_scales;
    DEVICE_AT(u8) of_down;
    DEVICE_AT(f32) down_scales;
    DEVICE_AT(const f32) partial; // of the product before
    u64 split_stride;
    u32 n_splits;
    u32 n_cols, n_ffn;
    u32 n_in, n_hidden; // the same, padded
    u32 n_slots, activation, exact;
    u32 bits[TRELLIS_STACKS];
    u32 reserved;
};

struct trellis_experts_product_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) ids;
    DEVICE_AT(const u8) stacks[2];
    DEVICE_AT(const u8) rows; // [entries][n_matrices][n_in]
    DEVICE_AT(const f32) scales;
    // [n_splits][entries][n_matrices][n_out]; from one split to the next split_stride numbers
    DEVICE_AT(f32) partial;
    // Entries of expert e are entries[first[e]] to entries[first[e + 1]], by experts_group; none: a block for
    // each entry.
    DEVICE_AT(const u32) first;
    DEVICE_AT(const u32) entries;
    u64 split_stride;
    u32 n_in, n_out; // padded
    u32 n_experts, n_slots;
    u32 n_matrices, matrix; // the first of this launch's
    u32 split_blocks;       // blocks of 128 columns of a split
    u32 bits, codebook;
    u32 reserved;
};

struct trellis_experts_row_params {  // trellis_experts_hopper.cu: products of one row's entries
    struct trellis_experts_params x; // partial: gate's and up's sums, for down
    DEVICE_AT(f32) sums;             // [n_splits][entries and matrices][outputs], this product's
    DEVICE_AT(u32) arrived;          // [blocks of 128 outputs], zero between launches; of down
    u64 sums_stride;                 // numbers from one split to the next
    u32 n_splits, split_blocks;
};

// Groups of `most` entries of one expert: expert e's begin at group trellis_experts_group(first[e], e, most).
SHARED_INLINE u32 trellis_experts_group(u32 first, u32 expert, u32 most)
{
    return first / most + expert;
}

// Shared memory of a block of trellis_experts_hopper.cu: barriers, records, the warps' sums and their rings.
TRELLIS_CONSTANT u32 trellis_hopper_pitch(u32 bits)
{
    return TRELLIS_HOPPER_TILES * 8 * bits / 32 * 32 + (TRELLIS_HOPPER_TILES * 8 * bits % 32 <= 8 ? 8 : 40);
}
TRELLIS_CONSTANT u32 trellis_experts_shared_bytes(u32 bits, u32 split_blocks)
{
    u32 record = EXL3_BLOCK * 2 * 4 + 16, sums = 2 * 2 * EXL3_BLOCK * 4,
        codes = TRELLIS_EXPERTS_WARPS * trellis_depth(bits) * 8 * trellis_hopper_pitch(bits) * 4;
    return TRELLIS_BARRIER_WORDS * 4 + split_blocks * record + sums + codes;
}
