// vendor_parts.h - the arguments of the kernels around a product of the vendor's library. Shared by C and
// CUDA.
#pragma once
#include "gemm/cuda/gemm_params.h"

struct vendor_weights_params {
    DEVICE_AT(const struct step) step;
    struct weight_planes w;
    DEVICE_AT(u8) out; // bf16 [n_rows, n_cols]
};
struct vendor_finish_params {
    struct gemm_params pairs;
    DEVICE_AT(const f32) sums[3]; // of each matrix [rows, n_rows]
};

#ifdef HOST_C
// Plans a product of all pairs of params, of one to three matrices.
void gemm_vendor_launch(struct cuda_plan *p, const struct gemm_params *params, u32 n_matrices, u32 max_rows);
#endif
