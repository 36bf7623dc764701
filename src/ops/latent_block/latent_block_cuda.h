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
    u32 each, more;   // eights of rows of a block; the first `more` blocks have one more
    u32 most;         // rows of a block
    u32 at, plane[4]; // in shared memory: all, and from there each plane
    u32 row[4];       // bytes of a row
};

// Products in turn. DOWN: Wqa, and behind it Wkva.
enum { BLOCK_DOWN, BLOCK_UP, BLOCK_ABSORB, BLOCK_EXPAND, BLOCK_OUT, BLOCK_N_PRODUCTS };

struct latent_block_params {
    struct attend_params attend; // begins with the step
    DEVICE_AT(const f32) in;
    DEVICE_AT(const f32) norm;
    DEVICE_AT(const f32) q_norm;
    DEVICE_AT(const f32) kv_norm;
    DEVICE_AT(const f32) angles;
    DEVICE_AT(f32) out;
    // words that blocks hand on, zero between launches: fp32 of first and kv, [q_latent + key]; pairs of bf16
    // of queries and absorbed ones, by head; fp32 of attended parts, [splits][heads][latent + 2]
    DEVICE_AT(u32) first;
    DEVICE_AT(u32) queries;
    DEVICE_AT(u32) absorbed;
    DEVICE_AT(u32) parts;
    DEVICE_AT(u32) values;  // pairs
    DEVICE_AT(u32) arrived; // blocks that have read them
    struct weight_planes w[BLOCK_N_PRODUCTS], kv_a;
    struct latent_rows rows[BLOCK_N_PRODUCTS];
    struct latent_block_args args;
    u32 tiles;                        // of heads
    u32 row_at[2], state_at, n_words; // n_words: from `first` to `parts`
};
