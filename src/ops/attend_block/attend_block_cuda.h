// attend_block_cuda.h - the arguments of the CUDA kernel. Shared by C and CUDA.
#pragma once
#include "gemm/cuda/block_rows.h"
#include "ops/attend/attend_cuda.h"
#include "ops/attend_block/attend_block.h"

enum {
    ATTEND_BLOCK_DIM = 128,
    ATTEND_BLOCK_THREADS = ATTEND_FEW_THREADS(ATTEND_BLOCK_DIM),
    ATTEND_BLOCK_MOST_ROWS = 64, // of the output, of a block
    ATTEND_BLOCK_STATE = 2048    // bytes of shared memory
};

struct attend_block_rows {
    struct block_rows of_block;
    u32 n_blocks; // the first ones have rows
    u32 n_cols;
};

struct attend_block_params {
    struct attend_params attend; // begins with the step; out: words, pairs of bf16, [n_heads * head_dim / 2]
    DEVICE_AT(const f32) in;
    DEVICE_AT(const f32) norm;
    DEVICE_AT(const f32) q_norm; // [head_dim], or none
    DEVICE_AT(const f32) k_norm;
    DEVICE_AT(const f32) angles;
    DEVICE_AT(f32) out;
    DEVICE_AT(u32) heads; // words, fp32: q, then k, then v; zero between launches, as the next and attend.out
    DEVICE_AT(u32) arrived;       // blocks that have read what was attended
    struct weight_planes w[3], o; // of q, k and v
    struct attend_block_rows qkv, rows;
    struct attend_block_args args;
    u32 tiles; // of heads
    u32 row_at, state_at;
    u32 reserved;
};
