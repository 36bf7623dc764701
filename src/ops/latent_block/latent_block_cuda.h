// latent_block_cuda.h - the arguments of the CUDA kernel. Shared by C and CUDA.
#pragma once
#include "gemm/cuda/weight_layout.h"
#include "ops/attend/attend_cuda.h"
#include "ops/latent/latent_cuda.h"
#include "ops/latent_block/latent_block.h"

enum {
    BLOCK_THREADS = LATENT_FEW_THREADS,
    BLOCK_GROUP = 8,   // rows are dealt to blocks by eights: then a plane's part begins at 16 bytes
    BLOCK_HEADS = 2,   // whose rows a block has of a projection, at most
    BLOCK_SPLITS = 32, // of a past
    BLOCK_STATE = 1024 // bytes of shared memory
};

// What a block has of a matrix in shared memory, plane by plane as in weight_layout.h.
struct latent_rows {
    u32 each, more;              // eights of rows of a block; the first `more` blocks have one more
    u32 most;                    // rows of a block
    u32 at, plane[4];            // in shared memory: all, and from there each plane
    u32 row[4];                  // bytes of a row
    u32 n_blocks;                // of 32 activations of a row
    u32 head_rows, head_inverse; // rows that have the same activations; 2^32 by that, above
    u32 head_words;              // between two heads' activations
    u32 shift;                   // a row is multiplied by 1 << shift lanes
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
    // first and kv, else pairs of bf16, by head; before those of EXPAND fp32 of attended parts,
    // [splits][heads] [latent + 4].
    DEVICE_AT(u32) words[BLOCK_N_PRODUCTS - 1];
    DEVICE_AT(u32) parts;
    DEVICE_AT(u32) arrived; // blocks that have read them
    struct weight_planes w[BLOCK_N_PRODUCTS], kv_a;
    struct latent_rows rows[BLOCK_N_PRODUCTS];
    struct latent_block_args args;
    u32 tiles;                        // of heads
    u32 row_at[2], state_at, n_words; // n_words: from the first to `parts`
};
