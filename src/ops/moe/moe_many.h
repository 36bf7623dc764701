// moe_many.h - the arguments of the kernels for many rows (moe_many.cu, moe_hopper.cu). Shared by C and CUDA.
//
// A slot of a row is an entry, row * n_slots + slot. Each expert's entries lie in a region of their own, in
// order; regions begin at multiples of eight rows. A region's rows are packed for wgmma: [64 columns][rows,
// a multiple of eight][128 bytes], in the order of fragments.cuh with 16-byte words swizzled by the row.
// Columns are a multiple of 64; where they are none of 128, zeros follow.
#pragma once
#include "device/step.h"
#include "gemm/cuda/weight_layout.h"
#include "ops/moe/moe.h"

enum {
    MOE_LEAST_MANY = 64, // rows that a tape can get
    MOE_TILE_ROWS = 160,
    MOE_ROOM = 216 << 10, // of stages
    MOE_MOST_STAGES = 4,
    HOPPER_MOE_THREADS = 384,
    MOE_MANY_EXPERTS = 256, // of a list of tiles
    MOE_MOST_TILES = 1024,
    MOE_HOPPER_SHARED = MOE_ROOM + 2 * 8 * MOE_MOST_STAGES + 2 * 4 * MOE_MANY_EXPERTS + 4 * MOE_MOST_TILES +
                        8 + 2 * 2 * 4 * MOE_TILE_ROWS,
    MOE_SORT_THREADS = 1024, // moe_sort
    MOE_PACK_THREADS = 256,  // moe_pack
    MOE_SUM_THREADS = 256    // moe_sum
};

// Formats of weights that moe_hopper.cu has kernels for.
#define MOE_HOPPER_FORMATS(with) \
    with(Q4_0, q4_0) with(Q8_0, q8_0) with(Q4_K, q4_k) with(Q5_K, q5_k) with(Q6_K, q6_k) with(MXFP4, mxfp4)

struct moe_many_params {
    DEVICE_AT(const struct step) step;
    struct weight_planes w[2];    // gate and up, or down twice
    DEVICE_AT(const f32) bias[2]; // [n_experts n_out], or none
    DEVICE_AT(const u8) rows;     // packed; of moe_pack [rows, n_cols] fp32
    DEVICE_AT(u8) out;            // packed, or bf16 [entries, n_out]
    DEVICE_AT(const f32) ids;     // [rows, n_slots]
    DEVICE_AT(u32) count;         // [n_experts] entries
    DEVICE_AT(u32) region;        // [n_experts] first row
    DEVICE_AT(u32) entries;       // [region rows]; none: ~0
    u32 n_cols;                   // of the weights
    u32 n_out, n_pairs;           // of an expert
    u32 n_experts, n_slots;
    u32 gated, activation;
    f32 limit;
};

struct moe_sum_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const u8) parts;    // bf16 [rows, n_slots, n_cols]
    DEVICE_AT(const f32) shared;  // [rows, n_cols], or none
    DEVICE_AT(const f32) weights; // [rows, n_slots + 1]
    DEVICE_AT(const f32) add;     // [rows, n_cols], or none
    DEVICE_AT(f32) out;
    u32 n_cols, n_slots;
};

// Steps of 128 columns, and the bytes of a packed row.
SHARED_INLINE u32 moe_steps(u32 n_cols)
{
    return (n_cols + 127) / 128;
}
SHARED_INLINE u32 moe_packed_bytes(u32 n_cols)
{
    return moe_steps(n_cols) * 256;
}

// Rows of all regions, at most.
SHARED_INLINE u32 moe_region_rows(u32 n_entries, u32 n_experts)
{
    return (n_entries + 7 * n_experts + 7) / 8 * 8;
}
