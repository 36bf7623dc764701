// epilogue.h - what a matrix product may do to its sums before they are stored, as arguments. Shared by C, CUDA and MSL.
//
// The operations of the same names (ops/activate, ops/rope_store) define the results; here are the arguments that they and the
// products' epilogues have in common.
#pragma once
#include "base/lang.h"
#include "device/pages.h"

enum epilogue {          // what becomes of the sums
    EPILOGUE_LINEAR,     // out = sum (+ bias) (+ add)
    EPILOGUE_GATED,      // out = f(gate) * up
    EPILOGUE_GATE_OVER,  // out = f(sum) * out
    EPILOGUE_ROPE_STORE, // q to out, k and v rotated to their pages
    EPILOGUE_QKV,        // q, k and v, each to its out
};

enum activation { ACTIVATION_SILU, ACTIVATION_GELU_TANH };

enum rope_pairs { ROPE_HALVES, ROPE_ADJACENT };

struct rope_store_args {
    struct page_shape pages;
    u32 n_heads;
    u32 n_dims; // rotated dimensions of a head
    u32 pairs;  // enum rope_pairs
    f32 eps;    // of the head norms
};
STATIC_ASSERT(sizeof(struct rope_store_args) == 32);
