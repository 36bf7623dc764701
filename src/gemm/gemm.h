// gemm.h - the words that all matrix products share: epilogues, packings and their arguments. For C, CUDA and
// MSL.
//
//   out[row][n] = epilogue(sum over k of x[row][k] * w[n][k])
// x: rows of activations, packed as a kernel reads them (enum packing). w: a matrix in its own format (enum
// quant), in the layout of its device (enum weight_layout). The operations matmul, qkv and gate_up name an
// epilogue; ops/activate and ops/rope_store define what the gated and the RoPE ones compute. One struct for
// each family of kernels: gemm_params (cuda/), product_args (metal/), product_tile (cpu/).
#pragma once
#include "base/lang.h"
#include "device/pages.h"

enum epilogue {          // what is done with the sums
    EPILOGUE_LINEAR,     // out = sum (+ bias) (+ add)
    EPILOGUE_GATED,      // out = f(gate) * up
    EPILOGUE_GATE_OVER,  // out = f(sum) * out
    EPILOGUE_ACTIVATED,  // out = f(sum (+ bias))
    EPILOGUE_ROPE_STORE, // q to out, k and v rotated to their pages
    EPILOGUE_QKV,        // q, k and v, each to its own out
};

enum packing {          // the layout in which a kernel reads rows of activations
    PACKING_INT8,       // int8 with a scale for each 32 columns
    PACKING_BF16,       // CPU: pairs of columns; CUDA: tiles of 128 rows by 64 columns, for TMA and wgmma
    PACKING_BF16_ROWS,  // CUDA: bf16, row by row
    PACKING_MMA,        // CUDA: bf16 in the order of mma's fragments
    PACKING_INT8_SUPER, // CPU: int8 with a scale for each 256 columns
    PACKING_F32,        // unchanged
    PACKING_INT8_TILES, // CUDA: int8 in tiles of 128 rows by 128 columns, with a scale for each 64
    PACKING_INT8_WIDE,  // CUDA: the same, with a scale for each 128
    N_PACKINGS,
};

// Epilogues compute the first two; the others are recorded as a command of their own, activate. Experts also
// compute the last one.
enum activation { ACTIVATION_SILU, ACTIVATION_GELU_TANH, ACTIVATION_GELU, ACTIVATION_CAP, ACTIVATION_RELU };
#define EXPERTS_ALPHA 1.702f // of the clamped SwiGLU in ops/experts/experts.h

enum rope_pairs { ROPE_HALVES, ROPE_ADJACENT };

struct rope_store_args {
    struct page_shape pages;
    u32 n_heads;
    u32 n_dims; // rotated dimensions of a head
    u32 pairs;  // enum rope_pairs
    f32 eps;    // of the head norms
};
STATIC_ASSERT(sizeof(struct rope_store_args) == 32);
