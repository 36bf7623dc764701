// moe_cuda.h - the arguments of moe_row, and where things lie in its shared memory. Shared by C and
// CUDA.
#pragma once
#include "device/step.h"
#include "gemm/cuda/weight_layout.h"
#include "ops/moe/moe.h"

enum {
    MOE_THREADS = 512,
    MOE_ROUND_PAIRS = 16, // pairs of gate and up: one a warp
    MOE_GROUP =
        8, // pairs and columns are dealt to blocks by eights: then every plane's part begins at 16 bytes
    MOE_MOST_ROUNDS = 8,
    MOE_MOST_EXPERTS = 256,
    MOE_STATIC = 5120 // bytes of shared memory, at most
};

struct moe_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) in;
    DEVICE_AT(const f32) norm;
    DEVICE_AT(const f32) router;      // [n_experts, n_cols]
    DEVICE_AT(const f32) router_bias; // [n_experts], or none
    DEVICE_AT(const f32) select_bias; // [n_experts], or none
    DEVICE_AT(f32) out;
    DEVICE_AT(u32) logits;  // [n_experts] zero between launches, as the next two
    DEVICE_AT(u32) hidden;  // [n_slots n_ffn / 2] pairs of bf16
    DEVICE_AT(u32) arrived; // blocks that have read them
    struct weight_planes gate, up, down;
    struct route_args route;
    u32 n_ffn, activation;
    f32 limit;
    u32 pair_groups, more_pairs;     // of a block; the first `more_pairs` blocks have one more
    u32 column_groups, more_columns; // the same
    u32 n_rounds;                    // at most, of a block
    u32 most_columns;                // of a block
    u32 rank_log2;                   // threads that rank an expert
    u32 down_at,
        row_at; // in shared memory, behind the rounds; where the rounds lie comes the row of hidden numbers
};

// Bytes of n rows of all planes, one plane behind the other.
SHARED_INLINE u32 moe_rows_bytes(u32 format, u32 n_cols, u32 n)
{
    return n * (u32)(layout_quants_bytes(format, n_cols) + layout_high_bytes(format, n_cols) +
                     layout_scales_bytes(format, n_cols) + layout_deltas_bytes(format, n_cols));
}
SHARED_INLINE u32 moe_row_bytes(u32 n_cols) // as struct row_int8
{
    return (n_cols / 32 * 44 + 15) / 16 * 16;
}
