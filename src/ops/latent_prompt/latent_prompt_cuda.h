// latent_prompt_cuda.h - the arguments of the CUDA kernels, and what lies in memory between them.
//
// Keys and values lie in chunks, as products read them from shared memory: 64 keys by 64 numbers in rows of
// 128 bytes, fp16, whose 16-byte words are swizzled within 8 rows. A tile is a head's 64 keys: the chunks of
// its keys, then those of its values. Matrices lie alike: a chunk has 64 of a head's numbers by 64 latents.
#pragma once
#include "gemm/cuda/weight_layout.h"
#include "ops/latent_prompt/latent_prompt.h"
#include "ops/latent/latent_runs.h"

enum {
    PROMPT_TILE = 64,        // keys, and numbers of a chunk
    PROMPT_CHUNK = 64 * 128, // bytes
    PROMPT_LATENT_CHUNKS = 512 / 64,
    PROMPT_MATRIX = PROMPT_LATENT_CHUNKS * PROMPT_CHUNK, // bytes of 64 numbers of a head's matrix
    PROMPT_QUERIES = 128,                                // of a block
    PROMPT_BARRIERS = 64,                                // bytes
    PROMPT_RUNS_THREADS = 1024,
    PROMPT_WEIGHTS_THREADS = 256,
    PROMPT_THREADS = 384, // two warpgroups that multiply, a third that brings what they read
    PROMPT_STAGES = 3,    // of latent_prompt_expand: matrices
    PROMPT_EXPAND_SHARED = PROMPT_STAGES * PROMPT_MATRIX + 4 * PROMPT_CHUNK + 128,
};

struct latent_prompt_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) q;
    DEVICE_AT(const f32) angles;
    DEVICE_AT(const u8) pages;
    DEVICE_AT(const u32) table;
    DEVICE_AT(f32) out; // between two turns: sums of values without their factor
    DEVICE_AT(struct latent_runs) runs;
    DEVICE_AT(u8) matrices; // [heads][chunks of x, then of values]
    DEVICE_AT(u8) tiles;    // [heads][n_tiles]
    DEVICE_AT(f32) state;   // between two turns: [rows][heads] of the highest score and the sum of weights
    struct weight_planes k_b, v_b;
    struct latent_prompt_args args;
    u32 first_tile, n_tiles; // of this turn
    u32 most_tiles;          // of all turns
    u32 reserved;
};
