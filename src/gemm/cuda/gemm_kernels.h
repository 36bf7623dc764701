// gemm_kernels.h - the kernels of every family, by weight format: the names under which the .cu files define
// them. NULL: there is none.
#pragma once
#include "quant/formats.h"

typedef const char *gemm_kernel_names[N_WEIGHT_QUANTS];

extern const gemm_kernel_names gemv_int8, gemv_pipeline, gemv_pipeline_alone, gemv_pipeline_wide,
    gemv_pipeline_long, gemv_pipeline_adapted, gemv_pipeline_adapted_wide, gemv_pipeline_adapted_long;
extern const gemm_kernel_names gemm_int8, gemm_int8_packed, gemm_int8_gated, gemm_int8_rope;
extern const gemm_kernel_names gemm_few, gemm_many, gemm_hopper_32, gemm_hopper_64, gemm_hopper_64_wide,
    gemm_hopper_128, gemm_hopper_256;
