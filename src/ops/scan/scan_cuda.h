// scan_cuda.h - the arguments and sizes of the CUDA kernels.
#pragma once
#include "device/step.h"
#include "ops/scan/scan.h"

#define SCAN_COLUMNS        32u  // of a state, to a block
#define SCAN_BLOCK          64u  // rows that go at once; a block begins at a multiple of it
#define SCAN_BLOCK_DIM      128u // d_k at most
#define SCAN_LONG           16u  // rows of a sequence in a step from which on they go by blocks
#define SCAN_PREPARE_SHARED 103680u
#define SCAN_BLOCKS_SHARED  212992u

// What a row of a block is multiplied by.
struct scan_factors {
    f32 found;       // what the state before the block holds for its key; of the delta rule
    f32 rule;        // its value: beta, or t
    f32 out;         // what the state before the block gives its query
    f32 kept;        // what it adds to the state behind the block
    f32 decay;       // of the state, from the block's beginning to behind the row
    f32 reserved[3]; // to 16-byte loads
};

struct scan_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) in;
    DEVICE_AT(const f32) dt;
    DEVICE_AT(const f32) beta;
    DEVICE_AT(const f32) a;
    DEVICE_AT(const f32) dt_bias;
    DEVICE_AT(const f32) d;
    DEVICE_AT(f32) states;
    DEVICE_AT(f32) out;
    struct scan_args args;
    u32 n_single;                           // of scan_rows: sequences.h
    u32 by_rows;                            // 1: all sequences; 0: scan_blocks takes the long ones
    DEVICE_AT(struct scan_factors) factors; // [rows, n_heads], private to scan_blocks
    DEVICE_AT(f32) solved;                  // [rows, n_heads, 2, SCAN_BLOCK], the same
};
