// ready.h - rows of activations in the forms that products of several rows read. Shared by C and CUDA.
//
// A launch of its own makes them (ready.cu), or the operation before, whose result they are (ready_next.cuh).
#pragma once
#include "device/step.h"
#include "gemm/cuda/planes.h"

// Eight rows of int8 activations, 32 columns: fragments of mma (lane (row, t): elements 4 t .. and 16 + 4 t ..), then for each row its
// scale and the sums of its two halves of 16, 16 bits each.
enum {
    READY_INT8_BYTES = 256 + 64,
    READY_INT8_THREADS = 1024,
    READY_PART_THREADS = 128,
    READY_PART_COLUMNS = 8 * READY_PART_THREADS
};

// One row of activations made ready: normalised where asked for, bf16, in the order of the fragments.
enum {
    READY_BF16_THREADS = 512,
    READY_ROWS = 128
}; // rows of a tile of ready activations: [rows / 128][ready_cols / 64][128 rows][64 columns]

struct ready_params { // of ready_rows, ready_int8, ready_int8_part, ready_bf16
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const f32) in;
    DEVICE_AT(const f32) norm;
    DEVICE_AT(u8) out;
    DEVICE_AT(f32) squares; // ready_int8_part: [n_cols / 32][8 rows]
    u32 n_cols, ready_cols, rows;
    u32 tiled; // 1: in tiles of 8 rows, as mma reads them from memory; 0: in tiles of READY_ROWS, for shared memory
    f32 eps;
    u32 reserved;
};

// A result that goes, beside its fp32 numbers, to where the next command's product wants its rows; see ready_next.cuh.
enum ready_form { READY_FOR_RING, READY_FOR_TILES };
struct ready_next {
    DEVICE_AT(u8) at;          // or none
    DEVICE_AT(const f32) norm; // READY_FOR_RING of gemm_ring alone: of the next product, whose rows are multiplied by it, or none
    DEVICE_AT(f32) squares;    // with a norm: [n_cols / 32][8 rows]
    u32 form, n_cols;
};
