// gemm_adapters.h - the arguments of the kernels that add what adapters do to the product of one row
// (gemm_adapters.cuh), and how such a product is planned. For C and CUDA.
#pragma once
#include "gemm/cuda/gemm_params.h"

enum {
    ADAPTER_THREADS = 96,
    ADAPTER_COPIES = 4 // of the sums, so that not all blocks poll the same cache lines
};
struct gemm_adapters { // zeroed: there are none
    DEVICE_AT(const f32) scales;
    DEVICE_AT(u32) words; // [copies][copy_words] sums of units; zero between launches (device/cuda/words.cuh)
    DEVICE_AT(u32) left;  // blocks that have read them, zero between launches
    DEVICE_AT(const f32) a[3];
    DEVICE_AT(const f32) b[3];
    DEVICE_AT(const u32) owners[3];
    u32 n_ranks[3]; // of the matrices in this launch
    u32 n_adapters;
    u32 shares_log2, share_cols; // blocks that share a rank's columns; columns of each
    u32 shared_bytes;            // of the block's h and sums; 0: there are no adapters
    u32 copy_words;              // of a copy: units, padded to whole cache lines
};
SHARED_INLINE u32 adapter_first_rank(const struct gemm_adapters *a, u32 matrix) // matrix 3: ranks of all
{
    return (matrix > 0 ? a->n_ranks[0] : 0) + (matrix > 1 ? a->n_ranks[1] : 0) +
           (matrix > 2 ? a->n_ranks[2] : 0);
}

struct adapted_params {
    struct gemm_params product;
    struct gemm_adapters adapters;
};

#ifdef HOST_C
// As gemm_launch, of one row, and neither invariant nor longer than ADAPTED_MOST_COLS (ops/lora/lora.h).
void gemm_launch_adapted(struct cuda_plan *p, const struct gemm_plan *product,
                         const struct gemm_adapters *adapters);
#endif
