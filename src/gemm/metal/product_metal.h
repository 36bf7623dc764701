// product_metal.h - the arguments that all matrix-product kernels of the Metal device share. Shared by C and
// MSL.
//
// A product is a list of pairs of weight rows: two neighbours (matmul), gate and up of one output (gate_up),
// or the two that RoPE rotates together (qkv). A kernel computes both sums of a pair in one place, so that
// each operation's epilogue is a few lines (pairs.metalh) and every variant serves every operation. What is
// fixed for a command is a function constant; Metal compiles one pipeline for each set of constants.
#pragma once
#include "base/lang.h"
#include "gemm/gemm.h"
#include "quant/formats.h"

enum product_mode { // enum epilogue, as the kernels spell it
    PRODUCT_PLAIN = EPILOGUE_LINEAR,
    PRODUCT_GATED = EPILOGUE_GATED,
    PRODUCT_ROPE = EPILOGUE_ROPE_STORE,
    PRODUCT_THREE = EPILOGUE_QKV,
};

#define FORMAT_ENUM(NAME, name, with) FORMAT_##NAME,
enum weight_format { QUANT_FORMATS(FORMAT_ENUM, ) }; // enum quant, as the kernels spell it

struct product_args {
    u32 n_cols;
    u32 n_out[3];     // rows of each matrix: columns of its result
    u32 row_bytes[3]; // of each matrix
    u32 rows;         // enum tensor_rows
    u32 activation;   // PRODUCT_GATED
    u32 work_rows;    // PRODUCT_THREE: k takes this number of rows of the workspace, then v
    f32 eps;          // of the norm
    f32 limit;        // PRODUCT_GATED: of experts_up; 0: none
    struct rope_store_args rope;
};
STATIC_ASSERT(sizeof(struct product_args) == 80);

// Function constants 0..6 of every file with products, all uint.
enum {
    PRODUCT_C_MODE,
    PRODUCT_C_FORMAT,   // and the next two: of each matrix; absent ones repeat the first
    PRODUCT_C_BIAS = 4, // bit i: matrix i has one
    PRODUCT_C_ADD,
    PRODUCT_C_LISTED, // rows lie at listed places, and there is no norm: experts
    PRODUCT_N_CONSTANTS,
};

// Tiles of the kernels: pairs of weight rows, and rows of activations, in a threadgroup. product_choice.c
// says why.
enum {
    ROWS_PAIRS = 8, // product_one, product_some, product_eight and product_sixteen
    ROWS_SIMDS = 4,
    EIGHT_ROWS = 8,
    SOME_ROWS = 4, // product_some
    FEW_ROWS = 16, // product_sixteen
    HEAD_PAIRS = 128,
    HEAD_THREADS = 256,
    PARTS_PAIRS = 32, // matmul_parts
    PARTS_THREADS = 512,
    TILE_PAIRS = 32, // product_many and product_tiled
    TILE_ROWS = 64,
    LISTED_ROWS = 32, // product_many over listed rows
    PLAIN_SIDE = 16,  // product_plain: pairs and rows
};

struct listed_tile { // of rows at listed places: rows [first, first + n) of the list, times one of many
                     // matrices
    u32 matrix, first, n, reserved;
};

// Pairs of matrix m.
SHARED_INLINE u32 product_pairs(u32 mode, u32 n_out)
{
    return mode == PRODUCT_GATED ? n_out : (n_out + 1) / 2;
}
