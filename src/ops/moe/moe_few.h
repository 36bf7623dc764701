// moe_few.h - the arguments of the kernels for few rows (moe_few.cu). Shared by C and CUDA.
//
// A slot of a row is an entry, row * n_slots + slot; the shared expert's entries are the rows. Packed rows
// are int8 as in row_int8.cuh.
#pragma once
#include "ops/moe/moe_cuda.h"

enum {
    MOE_FEW_ROWS = 16,     // that a tape can get, at most
    MOE_FEW_TOGETHER = 4,  // rows that are multiplied with an expert's weights at a time
    MOE_FEW_ENTRIES = 256, // of all rows, at most
    MOE_FEW_GROUPS = MOE_FEW_ENTRIES + MOE_FEW_ROWS / MOE_FEW_TOGETHER,
    MOE_FEW_ROUTE_THREADS = 256,
    MOE_FEW_UP_STAGES = 6, // at most: moe_few.cu, store_hidden
    MOE_FEW_DOWN_STAGES = 16,
    MOE_FEW_STATE = 10496 // bytes of shared memory, at most
};

struct moe_few_params {
    struct moe_params of;        // step, operands, sizes; no places
    DEVICE_AT(u8) packed;        // [rows] of n_cols
    DEVICE_AT(f32) logits;       // [rows, n_logits]
    DEVICE_AT(u8) hidden;        // [entries] packed rows of n_ffn
    DEVICE_AT(u8) shared_hidden; // [rows] packed rows of n_shared
    u32 n_stages, stage_bytes;   // at 0 in shared memory
    u32 rows_at, state_at;       // packed rows, or what down's groups add up to
    u32 columns, weight_bytes;   // of down: of a block at most; of a group's part of a stage
    u32 team_warps;              // of down: each stage has a team of warps
    u32 n_routers;               // blocks of moe_few_route that have logits; the others pack rows
};
