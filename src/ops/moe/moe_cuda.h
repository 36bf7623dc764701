// moe_cuda.h - the arguments of moe_row, and the layout of its shared memory. Shared by C and CUDA.
#pragma once
#include "device/step.h"
#include "gemm/cuda/weight_layout.h"
#include "ops/moe/moe.h"

enum {
    MOE_THREADS = 512,
    MOE_ROUND_PAIRS = 16, // pairs of gate and up, of one slot: one a warp
    MOE_GROUP = 8,        // columns are dealt to blocks by eights: then a plane's part begins at 16 bytes
    MOE_MOST_ROUNDS = 16,
    MOE_LOGIT_WORDS =
        4, // from one logit to the next: all blocks poll them, in more lines than would hold them
    MOE_MOST_EXPERTS = 256,
    MOE_MOST_COLUMNS = 256, // of a block
    MOE_STATE = 4096        // bytes of shared memory, at most
};

// Rows in shared memory, plane by plane as in weight_layout.h.
struct moe_rows {
    u32 plane[4]; // where each begins
    u32 row[4];   // bytes of a row
    u32 all;      // of a row's planes
};

// Where a block's weights lie in its shared memory. Rounds of gate and up take n_stages places in turn. Of
// down's slots the first own_slots have places of their own; the others come where rounds have been.
struct moe_places {
    u32 n_stages, stage_bytes; // from 0 on; the places are there for n_rounds, or the rounds take turns
    u32 own_slots, slot_bytes;
    u32 own_at, others_at;           // slot j lies at one of them + j slot_bytes, modulo 2^32
    u32 shared_at;                   // of the shared expert's down
    u32 turns;                       // something takes the place of a round
    u32 hidden_at, row_at, state_at; // hidden numbers: where all rounds have been, if all have places
    u8 free_slots[MOE_MOST_ROUNDS];  // of the others, whose places are free when a round is done
};

struct moe_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) in;
    DEVICE_AT(const f32) norm;
    DEVICE_AT(const f32) expert_norm;  // [n_cols], or none: the same
    DEVICE_AT(const f32) router;       // [n_experts, n_cols]
    DEVICE_AT(const f32) router_bias;  // [n_experts], or none
    DEVICE_AT(const f32) select_bias;  // [n_experts], or none
    DEVICE_AT(const f32) shared_gate;  // [n_cols], or none
    DEVICE_AT(const f32) expert_scale; // [n_experts], or none
    DEVICE_AT(const f32) gate_bias;    // [n_experts n_ffn], or none
    DEVICE_AT(const f32) up_bias;      // the same
    DEVICE_AT(const f32) down_bias;    // [n_experts n_cols], or none
    DEVICE_AT(f32) out;
    DEVICE_AT(f32) ids;     // [rows, n_slots] the choice, for who asks for it (moe.h)
    DEVICE_AT(u32) logits;  // [n_logits][MOE_LOGIT_WORDS] zero between launches, as the next two
    DEVICE_AT(u32) hidden;  // [n_hidden / 2] pairs of bf16: the slots', then the shared expert's
    DEVICE_AT(u32) arrived; // blocks that have read them
    struct weight_planes w_gate, w_up, w_down;
    struct weight_planes w_shared_gate, w_shared_up, w_shared_down; // of the shared expert; or none
    struct moe_rows up, down, shared_down; // the rows of a round, of one matrix; of a slot
    struct route_args route;
    u32 n_logits; // of the experts, then of the shared one's gate, if any
    u32 n_ffn, n_shared, n_hidden, activation;
    f32 limit, inverse_cols;
    u32 adds;                        // in to the sum
    u32 rounds, more_rounds;         // of a block; the first `more_rounds` blocks have one more
    u32 shared_rounds, more_shared;  // of the shared expert: the last `more_shared` blocks have one more
    u32 column_groups, more_columns; // as rounds
    u32 slot_rounds;                 // rounds of a slot
    u32 n_rounds;                    // of a block at most; the shared expert's come first
    struct moe_places at;
};

SHARED_INLINE u32 moe_row_bytes(u32 n_cols) // as struct row_int8
{
    return (n_cols / 32 * 44 + 15) / 16 * 16;
}

#ifdef HOST_C
#include "device/cuda/cuda.h"

// What moe_row and the kernels for few rows support, but for formats that lack a kernel.
bool moe_suits(const struct cuda_plan *p, const struct moe_args *a);
// Where moe_parts has the ids.
u64 moe_ids_at(struct cuda_plan *p);
// The operands and sizes; the places, and what is dealt to blocks, are left.
struct moe_params moe_params_of(struct cuda_plan *p, const struct moe_args *a);
// Divides n eights among the blocks. Returns the largest number of a block.
u32 moe_deal(u32 n, u32 n_blocks, u32 *each, u32 *more);
// n rows plane by plane. Returns their bytes.
u32 moe_place_rows(struct moe_rows *r, u32 format, u32 n_cols, u32 n);

// Adds the launches for few rows, or for many, and returns true, or returns false: not for this tape.
bool moe_plan_few(struct cuda_plan *p, const struct moe_args *a);
bool moe_plan_many(struct cuda_plan *p, const struct moe_args *a);
#endif
