// gemm_plan.h - what gemm_plan.c, which chooses the kernels of a matrix product, and those who plan their launches know together.
#pragma once
#include "gemm/cuda/gemm_params.h"

enum { FEW_ROWS = 16, MANY_PAIRS = 64 }; // rows of gemm_few's tiles; pairs of gemm_many's and gemm_hopper's

enum gemm_kernel {
    KERNEL_GEMV_INT8,
    KERNEL_GEMV_PLAIN,
    KERNEL_GEMV_EXACT,
    KERNEL_GEMM_INT8,
    KERNEL_GEMM_FEW,
    KERNEL_GEMM_MANY,
    KERNEL_GEMM_TMA
};

struct part { // the pairs of one launch have one format
    u32 format, max_rows;
    enum gemm_kernel gemm_kernel;
    bool final; // see struct gemm_plan
};

static inline u32 divide_up(u32 a, u32 b)
{
    return (a + b - 1) / b;
}
const char *gemm_format_name(u32 format); // as kernels are named

// plan_pipeline.c. Can gemm_int8 take rows of so many columns?
bool gemm_int8_fits(const struct cuda_plan *p, struct part part, u32 n_cols);
void gemv_launch(struct cuda_plan *p, struct gemm_params *params, struct part part);
void gemm_int8_launch(struct cuda_plan *p, struct gemm_params *params, struct part part);

// plan_wgmma.c. Can matrix m be copied in tiles? Is there gemm_hopper for such weights?
bool gemm_tma_fits(const struct cuda_plan *p, const struct gemm_params *params, u32 m);
bool gemm_hopper_exists(const struct cuda_plan *p, u32 tile_rows, u32 format);
bool gemm_hopper_launch(struct cuda_plan *p, const struct gemm_params *params, struct part part); // false: there is none
void gemm_tma_launch(struct cuda_plan *p, struct gemm_params *params, struct part part);
