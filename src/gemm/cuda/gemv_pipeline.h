// gemv_pipeline.h - shared by gemv_pipeline.cu and plan_pipeline.c, which plans its launches. For C and CUDA.
#pragma once
#include "gemm/cuda/gemm_params.h"

enum { GEMV_PIPELINE_THREADS = CONSUMER_THREADS + 32 }; // and the producer warp

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
