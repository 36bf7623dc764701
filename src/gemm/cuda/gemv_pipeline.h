// gemv_pipeline.h - shared by gemv_pipeline.cu and plan_pipeline.c, which plans its launches. For C and CUDA.
#pragma once
#include "gemm/cuda/gemm_params.h"

// Consumers of a kernel of which two blocks share an SM, and with the producer warp.
enum {
    BESIDE_THREADS = CONSUMER_THREADS / 2,
    GEMV_BESIDE_THREADS = BESIDE_THREADS + 32,
    GEMV_PIPELINE_THREADS = CONSUMER_THREADS + 32
};

// A packed row, and the sum of squares of each 32 columns.
SHARED_CONSTANT u32 row_bytes_of(bool int8, u32 n_cols)
{
    return (int8 ? n_cols / 32 * 44 : n_cols * 4) + (n_cols + 31) / 32 * 4;
}

// Whether gemv_pipeline's warps can take two pairs at a time. More than four bits need too many registers.
SHARED_CONSTANT bool gemv_takes_two_rounds(u32 format)
{
    return layout_quants_bytes(format, 32) + layout_high_bytes(format, 32) <= 16;
}

// Rows of 16-bit numbers that do not fit beside a stage stay in the registers of gemv_pipeline's threads,
// eights of each of the parts.
enum { LONG_PARTS = 2, LONG_EIGHTS = 4, MOST_LONG_COLS = LONG_PARTS * LONG_EIGHTS * CONSUMER_THREADS * 8 };
SHARED_INLINE u32 long_part_eights(u32 n_cols)
{
    return (n_cols / 8 + LONG_PARTS - 1) / LONG_PARTS;
}
