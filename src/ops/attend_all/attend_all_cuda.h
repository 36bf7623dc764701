// attend_all_cuda.h - the arguments of the CUDA kernels, and the slots of a step's rows.
#pragma once
#include "gemm/cuda/gemm_params.h"
#include "ops/attend_all/attend_all.h"

struct attend_all_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) in[3]; // q, k and v; none: packed
    DEVICE_AT(void) halves[3];  // attend_all_tile: the same as rows of bf16
    DEVICE_AT(f32) out;         // or none
    struct packed_out packed_out;
    struct attend_all_args args;
};
enum {
    ALL_PLAIN_THREADS = 128,
    ALL_TILE_THREADS = 256,
    ALL_TILE_ROWS = 128,
    ALL_TILE_KEYS = 64,
    ALL_STAGES = 2
};
// attend_all_hopper: q, K and V as TMA reads them, in boxes of a head's dims of 64 rows. A stage has K or V
// of a tile. Q: of runs, each with its description and two barriers.
struct attend_all_views {
    struct attend_all_params rows;
    struct tensor_view sides[3];
};
enum {
    ALL_HOPPER_GROUPS = 4, // warpgroups of 64 rows
    ALL_HOPPER_ROWS = ALL_HOPPER_GROUPS * 64,
    ALL_HOPPER_THREADS = ALL_HOPPER_GROUPS * 128 + 128,
    ALL_HOPPER_KEYS = 64,
    ALL_HOPPER_STAGES = 16,
    ALL_HOPPER_STAGE_BYTES = ALL_HOPPER_KEYS * 128,
    ALL_Q_BYTES = ALL_HOPPER_ROWS * 128,
    ALL_RUNS = 2,
    ALL_RUN_BYTES = 32,
    ALL_HOPPER_BYTES =
        ALL_HOPPER_STAGES * (ALL_HOPPER_STAGE_BYTES + 16) + ALL_RUNS * (ALL_Q_BYTES + ALL_RUN_BYTES + 16)
};

// Bytes of a key's numbers in shared memory: whole products of 16, and 16 more, so that eight rows have no
// bank conflicts.
#define ALL_TILE_PITCH(head_dim) (((head_dim) + 15) / 16 * 32 + 16)

#ifdef __CUDACC__
struct slot_rows {
    u32 first, end;
};
// The rows of the step in the same slot as `row`.
static __device__ __forceinline__ struct slot_rows slot_rows_of(const struct step *step, u32 row)
{
    const u32 *slots = step_slots(step), *positions = step_positions(step);
    u32 slot = slots[row], first = row - positions[row], low = row + 1, high = step->n_rows;

    while (low < high) {
        u32 middle = low + (high - low) / 2;
        if (slots[middle] == slot && positions[middle] == middle - first)
            low = middle + 1;
        else
            high = middle;
    }
    return { first, low };
}
#endif
