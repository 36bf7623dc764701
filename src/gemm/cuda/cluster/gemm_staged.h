// gemm_staged.h - the shared memory of gemm_staged.cu's kernels, and of gemm_staged_int8.cu's. For C and
// CUDA.
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

// gemm_staged_int8: 128 rows and 128 weight rows, 128 columns a stage; as many stages as fit beside the
// rooms. Activated results are stored as int8.
enum {
    STAGED_INT8_WEIGHTS = 128,
    STAGED_INT8_FACTORS = 2 * STAGED_INT8_WEIGHTS * 8, // scale and bias of a column, for each warpgroup
    STAGED_INT8_STAGE_BYTES = INT8_CHUNK_BYTES + STAGED_INT8_WEIGHTS * INT8_CHUNK_COLUMNS
};
#define STAGED_INT8_PITCH(activated, fp32) \
    ((activated) ? INT8_CHUNK_COLUMNS : STAGED_PITCH(STAGED_INT8_WEIGHTS, fp32))
#define STAGED_INT8_STAGES(activated, fp32) ((activated) ? 6 : (fp32) ? 4 : 5)
#define STAGED_INT8_BYTES(activated, fp32)                                  \
    (STAGED_INT8_STAGES(activated, fp32) * (STAGED_INT8_STAGE_BYTES + 16) + \
     STAGED_ROOM_ROWS * STAGED_INT8_PITCH(activated, fp32) + STAGED_INT8_FACTORS + 128)

// gemm_stationary_int8: the weights of 128 rows and up to 768 columns, and two rings of stages of 64 rows.
enum {
    STATIONARY_CHUNKS = 6, // of 128 columns
    STATIONARY_CHUNK_BYTES = STAGED_INT8_WEIGHTS * INT8_CHUNK_COLUMNS,
    STATIONARY_STAGE_BYTES = INT8_CHUNK_NUMBERS / 2 + 1024 // whose second part has the scales
};
#define STATIONARY_STAGES(activated, fp32) ((activated) ? 6 : (fp32) ? 3 : 5) // of a ring
#define STATIONARY_BYTES(activated, fp32)                                     \
    (STATIONARY_CHUNKS * STATIONARY_CHUNK_BYTES +                             \
     2 * STATIONARY_STAGES(activated, fp32) * (STATIONARY_STAGE_BYTES + 16) + \
     STAGED_ROOM_ROWS * STAGED_INT8_PITCH(activated, fp32) + STAGED_INT8_FACTORS + 256)
