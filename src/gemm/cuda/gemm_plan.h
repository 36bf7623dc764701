// gemm_plan.h - shared by the files that plan the launches of a matrix product on CUDA. gemm_plan.c chooses
// the kernels; plan_packing.c packs the activations; plan_pipeline.c, plan_wgmma.c and plan_vendor.c choose
// tiles, stages and grids.
#pragma once
#include "base/divide.h"
#include "device/fuse.h"
#include "gemm/cuda/cluster/cluster_params.h"
#include "gemm/cuda/gemm_adapters.h"
#include "gemm/cuda/gemm_kernels.h"
#include "gemm/cuda/gemm_params.h"

enum { FEW_ROWS = 16, MANY_PAIRS = 64 }; // rows of gemm_few's tiles; pairs of gemm_many's and gemm_hopper's

enum gemm_kernel { // families of kernels
    KERNEL_GEMV_INT8,
    KERNEL_GEMV_PLAIN,
    KERNEL_GEMV_EXACT,
    KERNEL_GEMM_INT8,
    KERNEL_GEMM_FEW,
    KERNEL_GEMM_MANY, // gemm_hopper, where there is one
    KERNEL_GEMM_TMA,  // gemm_cluster too
    KERNEL_GEMM_STAGED_INT8
};

struct gemm_part { // the pairs of one launch have one format
    u32 format, max_rows;
    enum gemm_kernel kernel;
};

// gemm_plan.c: the kernel that multiplies matrix m of a product; whether all of the product goes to the
// vendor's library.
enum gemm_kernel gemm_kernel_of(const struct cuda_plan *p, const struct gemm_plan *product, u32 m);
bool gemm_wants_vendor(const struct cuda_plan *p, const struct gemm_plan *product);
u32 gemm_max_rows(const struct cuda_plan *p, const struct gemm_params *params);
u32 gemm_n_matrices(const struct gemm_params *params);

// plan_packing.c: sets the addresses of packed rows, and launches the packing unless the command before does
// it.
void gemm_packing_launch(struct cuda_plan *p, const struct gemm_plan *product, struct gemm_params *params);

// plan_pipeline.c: whether gemm_int8 supports rows of n_cols; whether it can write this product's result
// packed.
bool gemm_int8_fits(const struct cuda_plan *p, u32 format, u32 max_rows, u32 n_cols);
bool gemm_int8_packs(const struct cuda_plan *p, const struct gemm_params *params);
void gemm_pipeline_launch(struct cuda_plan *p, struct adapted_params *params, struct gemm_part part);
void gemm_int8_launch(struct cuda_plan *p, struct gemm_params *params, struct gemm_part part);

// plan_wgmma.c: whether TMA can copy matrix m in tiles; whether gemm_hopper supports such weights and
// columns.
bool gemm_tma_fits(const struct cuda_plan *p, const struct gemm_params *params, u32 m);
bool gemm_hopper_fits(const struct cuda_plan *p, u32 format, u32 n_cols);
void gemm_hopper_launch(struct cuda_plan *p, const struct gemm_params *params, struct gemm_part part);
void gemm_tma_launch(struct cuda_plan *p, struct gemm_params *params, struct gemm_part part);

// plan_staged_int8.c: whether gemm_staged_int8 supports matrix m; how it reads its rows; whether it can write
// its result so.
bool gemm_staged_int8_fits(const struct cuda_plan *p, const struct gemm_params *params, u32 m);
const struct tape_packing *gemm_staged_int8_reads(const struct gemm_plan *product);
bool gemm_staged_int8_packs(const struct gemm_params *params, const struct tape_packing *packing);
void gemm_staged_int8_launch(struct cuda_plan *p, const struct cluster_params *params, u32 max_rows);
