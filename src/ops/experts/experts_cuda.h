// experts_cuda.h - the arguments of the experts' CUDA kernels. Shared by C and CUDA.
//
// Both operations are products of one kind. A slot of a row is an entry, row * n_slots + slot; its matrix is
// the expert in the row's ids. The shared expert is a product of its own: one slot, one expert, no ids. A
// task is an entry and a pair of weight rows: gate and up of one output, or two neighbours of down, as in
// gemm/cuda/gemm_params.h.
#pragma once
#include "device/step.h"
#include "gemm/cuda/weight_layout.h"
#include "ops/experts/experts.h"
#include "ops/route/route.h"

enum {
    EXPERTS_FEW_ROWS = 16, // of experts_int8: an entry for each thread
    EXPERTS_INT8_THREADS = EXPERTS_FEW_ROWS * ROUTE_MAX_SLOTS,
    EXPERTS_TILE_ENTRIES = 128, // of experts_many
    EXPERTS_TILE_PAIRS = 64,
    EXPERTS_MANY_THREADS = 256,
    EXPERTS_MANY_SHARED = 5 * 128 * EXPERTS_TILE_ENTRIES,
    EXPERTS_ROW_THREADS = 256, // of the kernels that pack, group and add
};

struct experts_params {
    DEVICE_AT(const struct step) step;
    struct weight_planes w[2];    // gate and up, or down twice
    DEVICE_AT(const f32) bias[2]; // [n_experts n_out], or none
    DEVICE_AT(const f32) ids;     // [rows, n_slots], or none
    DEVICE_AT(const f32) in;      // an entry's numbers: in + row * in_stride + slot * slot_stride
    DEVICE_AT(u8) packed;         // the same, packed
    DEVICE_AT(f32) out;           // out + row * out_stride + slot * n_out
    // experts_many, with ids: [n_experts + 1]; entries of expert e are entries[first[e]] to entries[first[e +
    // 1]].
    DEVICE_AT(u32) first;
    DEVICE_AT(u32) entries; // [rows * n_slots]
    u32 n_cols;             // of the weights
    u32 n_out, n_pairs;     // of an expert
    u32 n_experts, n_slots;
    u32 in_stride, slot_stride, out_stride; // slot_stride 0: the slots of a row share its numbers
    u32 packed_stride;                      // bytes
    u32 lanes;                              // experts_int8: that share a task
    u32 gated, activation;
    f32 limit;
};

struct experts_sum_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) parts;   // [rows, n_slots or one more, n_cols]
    DEVICE_AT(const f32) weights; // [rows, n_slots + 1]
    DEVICE_AT(const f32) add;     // or none
    DEVICE_AT(f32) out;
    u32 n_cols, n_slots, has_shared, reserved;
};

// Bytes of packed rows: int8 as struct row_int8 (row_int8.cuh); bf16 in the order of fragments.cuh, by 128
// columns.
SHARED_INLINE u32 experts_int8_stride(u32 n_cols)
{
    return (n_cols / 32 * 44 + 15) / 16 * 16;
}
SHARED_INLINE u32 experts_bf16_stride(u32 n_cols)
{
    return (n_cols + 127) / 128 * 256;
}
// The packed row of an entry, and the number of packed rows.
SHARED_INLINE u32 experts_packed_row(u32 entry, u32 n_slots, u32 slot_stride)
{
    return slot_stride ? entry : entry / n_slots;
}
