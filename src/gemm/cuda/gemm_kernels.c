// gemm_kernels.c - see gemm_kernels.h. Each table is named after its family; the .cu file's macro puts the
// same name before the format's.
#include "gemm/cuda/gemm_kernels.h"

#define KERNEL(NAME, name, family) [QUANT_##NAME] = #family "_" #name,

const gemm_kernel_names gemv_int8 = { QUANT_BLOCK_FORMATS(KERNEL, gemv_int8) };
const gemm_kernel_names gemv_pipeline = { QUANT_HALF_FORMATS(KERNEL, gemv_pipeline)
                                              QUANT_BLOCK_FORMATS(KERNEL, gemv_pipeline) };
const gemm_kernel_names gemv_pipeline_alone = { QUANT_HALF_FORMATS(KERNEL, gemv_pipeline_alone)
                                                    QUANT_BLOCK_FORMATS(KERNEL, gemv_pipeline_alone) };
const gemm_kernel_names gemv_pipeline_wide = { [QUANT_Q2_K] = "gemv_pipeline_wide_q2_k" };
const gemm_kernel_names gemv_pipeline_long = { QUANT_HALF_FORMATS(KERNEL, gemv_pipeline_long) };
const gemm_kernel_names gemv_pipeline_adapted = { QUANT_HALF_FORMATS(KERNEL, gemv_pipeline_adapted)
                                                      QUANT_BLOCK_FORMATS(KERNEL, gemv_pipeline_adapted) };
const gemm_kernel_names gemv_pipeline_adapted_wide = { [QUANT_Q2_K] = "gemv_pipeline_adapted_wide_q2_k" };
const gemm_kernel_names gemv_pipeline_adapted_long = { QUANT_HALF_FORMATS(KERNEL,
                                                                          gemv_pipeline_adapted_long) };
const gemm_kernel_names gemm_int8 = { QUANT_BLOCK_FORMATS(KERNEL, gemm_int8) };
const gemm_kernel_names gemm_int8_packed = { QUANT_BLOCK_FORMATS(KERNEL, gemm_int8_packed) };
const gemm_kernel_names gemm_int8_gated = { QUANT_BLOCK_FORMATS(KERNEL, gemm_int8_gated) };
const gemm_kernel_names gemm_int8_rope = { QUANT_BLOCK_FORMATS(KERNEL, gemm_int8_rope) };
const gemm_kernel_names gemm_few = { QUANT_HALF_FORMATS(KERNEL, gemm_few)
                                         QUANT_BLOCK_FORMATS(KERNEL, gemm_few) };
const gemm_kernel_names gemm_many = { QUANT_HALF_FORMATS(KERNEL, gemm_many)
                                          QUANT_BLOCK_FORMATS(KERNEL, gemm_many) };
const gemm_kernel_names gemm_hopper_32 = { QUANT_HALF_FORMATS(KERNEL, gemm_hopper_32)
                                               QUANT_BLOCK_FORMATS(KERNEL, gemm_hopper_32) };
const gemm_kernel_names gemm_hopper_64 = { QUANT_HALF_FORMATS(KERNEL, gemm_hopper_64)
                                               QUANT_BLOCK_FORMATS(KERNEL, gemm_hopper_64) };
const gemm_kernel_names gemm_hopper_64_wide = { QUANT_HALF_FORMATS(KERNEL, gemm_hopper_64_wide)
                                                    QUANT_BLOCK_FORMATS(KERNEL, gemm_hopper_64_wide) };
const gemm_kernel_names gemm_hopper_128 = { QUANT_HALF_FORMATS(KERNEL, gemm_hopper_128)
                                                QUANT_BLOCK_FORMATS(KERNEL, gemm_hopper_128) };
const gemm_kernel_names gemm_hopper_256 = { QUANT_HALF_FORMATS(KERNEL, gemm_hopper_256)
                                                QUANT_BLOCK_FORMATS(KERNEL, gemm_hopper_256) };
