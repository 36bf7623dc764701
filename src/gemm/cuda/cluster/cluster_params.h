// cluster_params.h - the arguments of gemm_cluster's and gemm_staged's kernels. For C and CUDA.
#pragma once
#include "gemm/cuda/gemm_params.h"

struct cluster_params {
    struct tiles_params tiles;
    // gemm_staged: up to three matrices of the same rows follow each other in the list of pairs, and each has
    // a packed result of its own; else one.
    DEVICE_AT(u8) packed_at[3];
    u32 matrix_pairs;
    u32 first_row, end_row; // of the launch; from a whole cluster's tile on
};

#ifdef HOST_C
// Launches n products of the same rows, with matrices of one shape and packed results alone, as one. False:
// no kernel takes them.
bool gemm_launch_joined(struct cuda_plan *p, const struct gemm_plan *products, u32 n);
#endif
