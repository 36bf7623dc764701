// latent_block_cuda.h - the arguments of the CUDA kernel. Shared by C and CUDA.
#pragma once
#include "gemm/cuda/block_rows.h"
#include "ops/attend/attend_cuda.h"
#include "ops/latent/latent_cuda.h"
#include "ops/latent_block/latent_block.h"

enum {
    BLOCK_THREADS = LATENT_FEW_THREADS,
    BLOCK_SPLITS = 64, // of a past; two a lane
    BLOCK_COPIES = 4,  // of results that all blocks read
    BLOCK_SLOTS = 2,   // pages that a block takes at once where there are many
    BLOCK_DEPTH = 4,   // of a slot at most, in shared memory
    BLOCK_SLOT_SUMS = BLOCK_SLOTS * ATTEND_FEW_HEADS * (LATENT_VALUE + 4 + 2) * 4, // bytes
    BLOCK_STATE = 9728                                                             // bytes of shared memory
};

// A product's rows. Those of a projection are dealt to the blocks of each head.
struct latent_rows {
    struct block_rows of_block;
    u32 at;       // in shared memory
    u32 n_rows;   // of all, or of a head
    u32 n_blocks; // of 32 activations of a row
    u32 shift;    // a row is multiplied by 1 << shift lanes
};

// Products in turn. DOWN: Wqa, and behind it Wkva.
enum { BLOCK_DOWN, BLOCK_UP, BLOCK_ABSORB, BLOCK_EXPAND, BLOCK_OUT, BLOCK_N_PRODUCTS };

struct latent_block_params {
    struct attend_params attend; // begins with the step
    DEVICE_AT(const f32) in;
    DEVICE_AT(const f32) norms[2]; // of x, of first
    DEVICE_AT(const f32) kv_norm;
    DEVICE_AT(const f32) angles;
    DEVICE_AT(f32) out;
    // Words that blocks hand on, zero between launches: of each product but the last its results, fp32 of
    // first and kv, else pairs of bf16, by head; copies of those that all blocks read; before those of EXPAND
    // fp32 of attended parts, [splits][heads] [latent + 4].
    DEVICE_AT(u32) words[BLOCK_N_PRODUCTS - 1];
    DEVICE_AT(u32) parts;
    DEVICE_AT(u32) arrived; // blocks that have read them
    struct weight_planes w[BLOCK_N_PRODUCTS], kv_a;
    struct latent_rows rows[BLOCK_N_PRODUCTS];
    struct latent_block_args args;
    f32 inverse_cols[2];              // of x, of first
    u32 tiles, n_splits;              // of heads; of a past, at most
    u32 head_blocks;                  // that share a head of the projections
    u32 row_at[2], state_at, n_words; // n_words: from the first to `parts`
    u32 depth, reserved;              // pages of a slot, from 0 of shared memory on; 0: no room for slots
};
