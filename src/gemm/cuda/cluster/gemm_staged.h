// gemm_staged.h - the shared memory of gemm_staged.cu's kernels. For C and CUDA.
#pragma once
#include "gemm/cuda/packing.h"

// A stage of the pipeline, and the bytes of a row of results in a warp's room: eight rows lie in different
// banks. fp32: whether results are.
enum { STAGED_STAGES = 4, STAGED_ROOM_ROWS = 8 * 16 };
#define STAGED_STAGE_BYTES(weights) ((PACKED_TILE_ROWS + (weights)) * 128)
#define STAGED_PITCH(weights, fp32) ((fp32) ? (weights)*4 + 32 : (weights)*2 + 16)
#define STAGED_BYTES(weights, fp32)                                                                        \
    (STAGED_STAGES * (STAGED_STAGE_BYTES(weights) + 16) + STAGED_ROOM_ROWS * STAGED_PITCH(weights, fp32) + \
     128)
