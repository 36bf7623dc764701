// gemm_params.h - the arguments that all matrix-product kernels share, for matmul, gate_up and qkv. For C and
// CUDA.
//
// A product is a list of pairs of weight rows: two neighbours (matmul), gate and up of one output (gate_up),
// or the two that RoPE rotates together (qkv). A kernel computes both sums of a pair in one place, so that
// each operation's epilogue is a few lines (epilogue.cuh). Most kernels serve all operations. Where code that
// runs once per launch would cost, a kernel serves one.
#pragma once
#include "gemm/cuda/weight_layout.h"
#include "gemm/cuda/packing.h"
#include "gemm/gemm.h"

struct gemm_pipeline { // for gemv_pipeline.cu and gemm_int8.cu, in shared memory
    u32 lanes_log2;    // gemv: lanes that share a pair
    u32 rounds;     // gemv: pairs of a warp at a time, 1 or 2; a stage has rounds * CONSUMER_THREADS / lanes
    u32 depth;      // stages
    u32 prefetched; // stages requested before the rows are there
    u32 stage_bytes;
    u32 most_pairs;  // gemv: in a block
    u32 block_pairs; // gemv: in a block; the first `more` blocks have one more
    u32 more;
    u32 apart;        // gemv: a stage has all first rows, then all second rows; else they alternate
    u32 words;        // a row's part of some plane is no multiple of 16 bytes; gemm: or is short
    u32 split_blocks; // gemm: blocks of 32 columns that a thread block multiplies, a multiple of 8
    u32 n_splits;     // gemm: of the columns
    u32 eights;       // gemm: tiles of eight rows of activations in a pass, at most
};
enum { CONSUMER_THREADS = 512, PIPELINE_STAGES = 8 };

// gemm_int8.cu: tiles of 8 pairs; 16 warps multiply, two are producers, two are epilogue warps.
enum {
    INT8_TILE_PAIRS = 8,
    INT8_TILE_ROWS = 16,
    PRODUCER_WARPS = 2,
    EPILOGUE_WARPS = 2,
    GEMM_INT8_THREADS = CONSUMER_THREADS + 32 * (PRODUCER_WARPS + EPILOGUE_WARPS),
    INT8_PASS_ROWS = 16
};
// Warps that share a tile's columns: as many as have two blocks of 32 each. Other warps take another tile.
SHARED_INLINE u32 int8_tile_warps(u32 split_blocks)
{
    return split_blocks >= 32 ? 16 : 8;
}
// Bytes of a split's part of a row of a plane in a stage: an odd number of 16-byte words, so that eight rows
// have no bank conflicts. Where whole words are copied and the part begins inside one, at a multiple of 4,
// the copy begins with that word.
SHARED_INLINE u32 stage_pitch(u64 row, u64 share)
{
    u32 bytes = (u32)share + (row % 16 == 0 && share % 16 != 0 ? 12 : 0), words = (bytes + 15) / 16;
    return share ? (words | 1) * 16 : 0;
}
// Sums of stages for the epilogue warps: [epilogue warps][16 warps][eights][32 lanes] of 16 bytes.
SHARED_INLINE u32 int8_sums_bytes(u32 eights)
{
    return EPILOGUE_WARPS * 16 * eights * 32 * 16;
}
// Scales of super blocks as fp32, once per warp's tile: [16 warps][16 rows][8 blocks, halves or minimums].
SHARED_CONSTANT u32 int8_scales_bytes(u32 format)
{
    u32 twice = format != QUANT_IQ4_XS; // which has neither
    return layout_has_super_blocks(format) && format != QUANT_Q2_K ? 16 * 16 * 8 * 4 << twice : 0;
}

struct gemm_params {
    DEVICE_AT(const struct step) step;
    struct weight_planes w[3]; // [0], or gate and up, or q, k and v
    DEVICE_AT(const f32) bias[3];
    DEVICE_AT(f32) out[3];           // [rows, stride]
    DEVICE_AT(const f32) in;         // [rows, n_cols]
    DEVICE_AT(const f32) norm;       // [n_cols], or none
    DEVICE_AT(const f32) add;        // as out[0]
    DEVICE_AT(const u8) packed_mma;  // activations in the form that the many-row kernels read
    DEVICE_AT(const u8) packed_int8; // the same for gemm_int8, or gemm_staged_int8
    DEVICE_AT(const f32) squares;    // of rows in it that lack the norm's factor, [n_cols / 32][8]; or none
    DEVICE_AT(const u8) packed_bf16; // the same for gemm_hopper's tiles of weights
    struct packed_out packed_out;    // gemm_hopper: bf16; gemm_int8: int8, of EPILOGUE_LINEAR
    DEVICE_AT(f32) partial; // gemm_int8, gemm_hopper (zero between launches): sums of a share of the columns
    DEVICE_AT(u32) arrived; // gemm_int8: shares that have come, zero between launches
    DEVICE_AT(const f32) angles;
    DEVICE_AT(void) k_pages;
    DEVICE_AT(void) v_pages;
    DEVICE_AT(const u32) table;
    u32 out_stride[3];
    u32 n_cols, packed_cols; // packed_cols: n_cols rounded up to 128
    u32 first_pair, n_pairs; // this launch's
    u32 mode, rows, activation;
    u32 lanes; // that share a pair: 8, 16 or 32
    f32 eps;
    struct rope_store_args rope;
    struct gemm_pipeline pipeline;
};

// gemm_hopper.cu and gemm_tma.cu: as many stages as fit, for tiles beside a small kernel's shared memory.
// HOPPER_STAGE: 128 columns of activations, and of weights (part: bytes of a row).
#define HOPPER_THREADS(groups)           ((groups)*128 + 128)
#define HOPPER_FEW_THREADS(groups)       ((groups)*128 + 32)
#define HOPPER_STAGE(rows, groups, part) (((rows)*256 + (groups)*64 * (part) + 1023) / 1024 * 1024)
enum { HOPPER_ROOM = 229376, HOPPER_TILES_ROOM = 214016 };
enum { HOPPER_MOST_STAGES = 8, HOPPER_MOST_TILE_STAGES = 13 };
enum { ROWS_CLUSTER = 2 };                                   // gemm_cluster.cu: blocks of a cluster
#define ROWS_BOXES(weights)       ((weights) == 168 ? 3 : 2) // TMA tiles of a tile's weights
#define ROWS_THREADS(rows, split) ((rows) > 64 ? HOPPER_THREADS(2) : HOPPER_FEW_THREADS((split) ? 1 : 2))

// A matrix of plain numbers as TMA reads it: tiles of 64 columns, [eight or four][row of a pair][pair].
struct tensor_view { // CUtensorMap
#if defined(__CUDACC__)
    alignas(64)
#else
    _Alignas(64)
#endif
        u64 words[16];
};
struct tiles_params {
    struct gemm_params pairs;
    struct tensor_view w[3];
    u32 eights[3]; // of pairs, in the view's fourth dimension
    u32 swapped;   // up lies below gate in memory, so the view's pairs begin with up
};

SHARED_INLINE u32 stage_part_bytes(u32 n_rows, u64 row_bytes) // of a plane, in a stage
{
    return (n_rows * (u32)row_bytes + 15) / 16 * 16;
}

#ifdef HOST_C
#include "device/fuse.h"

// Plans the launches of a product. The plan fills in packed activations, pairs and lanes of params. work: the
// operation's workspace.
struct gemm_plan {
    struct gemm_params params;
    u64 work, work_bytes;
    u32 exact, adds; // adds: to the sums, whether or not params.add has a place yet
};
void gemm_launch(struct cuda_plan *p, const struct gemm_plan *product);
// Whether a product of this tape's rows can store k and v in such pages; else EPILOGUE_QKV, then rope_store.
bool gemm_stores_pages(const struct cuda_plan *p, const struct page_shape *pages);

// For tape_seal: the form in which a product reads its rows, or NULL; can it write its result in a form?
extern const struct tape_packing gemm_packing_int8, gemm_packing_bf16, gemm_packing_mma, gemm_packing_rows,
    gemm_packing_int8_tiles, gemm_packing_int8_wide;
const struct tape_packing *gemm_packing_read(const struct cuda_plan *p, const struct gemm_plan *product);
bool gemm_packing_written(const struct cuda_plan *p, const struct gemm_plan *product,
                          const struct tape_packing *packing);
// Where the plan's command writes its result `out` packed; at = 0: it does not.
struct packed_out gemm_packed_out(const struct cuda_plan *p, u32 out);
u64 packing_int8_bytes(u32 max_rows, u32 n_cols);
u64 packing_bf16_bytes(u32 max_rows, u32 packed_cols);
u64 packing_squares_bytes(u32 n_cols); // for up to eight rows, [n_cols / 32][8]
#endif
