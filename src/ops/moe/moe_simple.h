// moe_simple.h - the arguments of moe_simple, and the layout of its shared memory. Shared by C and CUDA.
#pragma once
#include "device/step.h"
#include "gemm/cuda/weight_layout.h"
#include "ops/moe/moe.h"

enum {
    MOE_THREADS = 512,
    MOE_ROUND_PAIRS = 16, // pairs of gate and up: one a warp
    MOE_GROUP = 8, // pairs and columns are dealt to blocks by eights: then a plane's part begins at 16 bytes
    MOE_MOST_ROUNDS = 8,
    MOE_LOGIT_WORDS =
        4, // from one logit to the next: all blocks poll them, in more lines than would hold them
    MOE_MOST_EXPERTS = 256,
    MOE_KEYS = 512,  // experts that are ranked at a time, at most
    MOE_STATE = 5760 // bytes of shared memory, at most
};

// Rows in shared memory, plane by plane as in weight_layout.h.
struct moe_simple_rows {
    u32 plane[4]; // where each begins
    u32 row[4];   // bytes of a row
    u32 all;      // of a row's planes
};

struct moe_simple_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) in;
    DEVICE_AT(const f32) norm;
    DEVICE_AT(const f32) router;      // [n_experts, n_cols]
    DEVICE_AT(const f32) router_bias; // [n_experts], or none
    DEVICE_AT(const f32) select_bias; // [n_experts], or none
    DEVICE_AT(f32) out;
    DEVICE_AT(f32) ids;     // [n_slots] the choice, for who asks for it (moe.h)
    DEVICE_AT(u32) logits;  // [n_experts][MOE_LOGIT_WORDS] zero between launches, as the next two
    DEVICE_AT(u32) hidden;  // [n_hidden / 2] pairs of bf16: the slots', then the shared expert's
    DEVICE_AT(u32) arrived; // blocks that have read them
    struct weight_planes w_gate, w_up, w_down;
    struct weight_planes w_shared_gate, w_shared_up, w_shared_down; // of the shared expert; or none
    struct moe_simple_rows up, down, shared_down; // the rows of a round, of one matrix; of a slot
    struct route_args route;
    u32 n_ffn, n_shared, n_hidden, activation;
    f32 limit, inverse_cols;
    u32 pair_groups, more_pairs;     // of a block; the first `more_pairs` blocks have one more
    u32 shared_groups, more_shared;  // the same, of the shared expert's pairs
    u32 column_groups, more_columns; // the same
    u32 shared_rounds, n_rounds;     // at most, of a block; the shared expert's come first
    u32 rank_log2;                   // threads that rank an expert
    u32 round_bytes, slot_bytes;
    // in shared memory; first the rounds, in whose place then come hidden numbers
    u32 down_at, shared_down_at, row_at, state_at;
};

SHARED_INLINE u32 moe_row_bytes(u32 n_cols) // as struct row_int8
{
    return (n_cols / 32 * 44 + 15) / 16 * 16;
}

#ifdef HOST_C
#include "device/cuda/cuda.h"

// Where moe_parts has the ids (moe_cuda.c).
u64 moe_ids_at(struct cuda_plan *p);
// Adds the launch and returns true, or returns false: not for this command.
bool moe_plan_simple(struct cuda_plan *p, const struct moe_args *a);
#endif
