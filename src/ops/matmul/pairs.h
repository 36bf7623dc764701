// pairs.h - the arguments that all matrix-product kernels share, for matmul, gate_up and qkv. Shared by C and CUDA.
//
// A product is a list of pairs of weight rows: two neighbours (matmul), gate and up of one output (gate_up), or the two that RoPE turns
// together (qkv). A kernel computes both sums of a pair in one place, so each operation ends in its own few lines (pairs.cuh)
// and all kernels serve all operations.
#pragma once
#include "ops/matmul/planes.h"
#include "ops/qkv/qkv.h"

enum pairs_mode {
    PAIRS_PLAIN,     // out = sum (+ bias) (+ add)
    PAIRS_GATED,     // out = f(first) * second
    PAIRS_GATE_OVER, // out = f(sum) * out
    PAIRS_ROPE,      // q to out, k and v to their pages
    PAIRS_THREE,     // q, k and v, each to its out
};

struct pairs_ring { // of gemv_ring.cu, in shared memory
    u32 lanes_log2; // of the lanes that share a pair; a stage holds RING_THREADS / lanes pairs
    u32 depth;      // stages
    u32 stage_bytes;
    u32 most_pairs; // of a block
    u32 apart;      // the first rows of a stage's pairs, then the second ones; else one after the other
    u32 words;      // a row's part of some plane is not of whole 16-byte words
    u32 reserved[2];
};
enum { RING_THREADS = 512, RING_MOST_DEPTH = 8 };

struct pairs_params {
    DEVICE_AT(const struct step) step;
    struct planes w[3]; // [0], or gate and up, or q, k and v
    DEVICE_AT(const f32) bias[3];
    DEVICE_AT(f32) out[3];     // [rows, stride]
    DEVICE_AT(const f32) in;   // [rows, n_cols]
    DEVICE_AT(const f32) norm; // [n_cols], or none
    DEVICE_AT(const f32) add;  // as out[0]
    DEVICE_AT(const u8) ready; // activations in the form that the many-row kernels read
    DEVICE_AT(const f32) angles;
    DEVICE_AT(void) k_pages;
    DEVICE_AT(void) v_pages;
    DEVICE_AT(const u32) table;
    u32 out_stride[3];
    u32 n_cols, ready_cols;  // ready_cols: n_cols rounded up to 128
    u32 first_pair, n_pairs; // this launch's
    u32 mode, rows, activation;
    u32 lanes; // that share a pair: 8, 16 or 32
    f32 eps;
    struct rope_store_args rope;
    struct pairs_ring ring;
};

// One row of activations made ready: normalised where asked for, bf16, in the order of the fragments.
enum { READY_ROWS = 128 }; // rows of a tile of ready activations: [rows / 128][ready_cols / 64][128 rows][64 columns]

struct ready_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) in;
    DEVICE_AT(const f32) norm;
    DEVICE_AT(u8) out;
    u32 n_cols, ready_cols, rows;
    u32 tiled; // 1: in tiles of 8 rows, as mma reads them from memory; 0: in tiles of READY_ROWS, for shared memory
    f32 eps;
    u32 reserved;
};

// A plane's part of a stage with so many rows.
SHARED_INLINE u32 ring_part_bytes(u32 n_rows, u64 row_bytes)
{
    return (n_rows * (u32)row_bytes + 15) / 16 * 16;
}

#ifdef HOST_C
// Plans the launches of a product. params lacks ready, ready_cols, the pairs and lanes; work is the operation's workspace.
struct pairs_plan {
    struct pairs_params params;
    u64 work, work_bytes;
    u32 exact;
};
void pairs_launch(struct cuda_plan *p, const struct pairs_plan *product);
// Does a product of this tape's rows store k and v into such pages? If not, PAIRS_THREE and rope_store.
bool pairs_store(const struct cuda_plan *p, const struct page_shape *pages);
#endif
