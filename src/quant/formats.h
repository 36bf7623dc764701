// formats.h - the list of weight formats, once: enum quant and everything that has an entry for each is made
// from it. Shared by C, CUDA and MSL.
//
// X(NAME, name, with): QUANT_NAME, the name in kernels and files, and an argument that the user of the list
// passes on. The order is fixed: kernels compare formats by it (plain numbers first, then blocks of 32, super
// blocks of 256, tables).
#pragma once

#define QUANT_HALF_FORMATS(X, with)  X(F16, f16, with) X(BF16, bf16, with)
#define QUANT_PLAIN_FORMATS(X, with) X(F32, f32, with) QUANT_HALF_FORMATS(X, with)
#define QUANT_BLOCK_FORMATS(X, with) \
    X(Q4_0, q4_0, with)              \
    X(Q4_1, q4_1, with)              \
    X(Q5_0, q5_0, with)              \
    X(Q5_1, q5_1, with)              \
    X(Q8_0, q8_0, with)              \
    X(Q2_K, q2_k, with)              \
    X(Q3_K, q3_k, with)              \
    X(Q4_K, q4_k, with)              \
    X(Q5_K, q5_k, with)              \
    X(Q6_K, q6_k, with)              \
    X(IQ4_NL, iq4_nl, with)          \
    X(IQ4_XS, iq4_xs, with)          \
    X(MXFP4, mxfp4, with)            \
    X(Q8_16, q8_16, with)
// Of these: blocks of 32 with a scale and no minimum, and blocks of 256.
#define QUANT_SIGNED_FORMATS(X, with) \
    X(Q4_0, q4_0, with)               \
    X(Q5_0, q5_0, with)               \
    X(Q8_0, q8_0, with)               \
    X(IQ4_NL, iq4_nl, with)           \
    X(MXFP4, mxfp4, with)
#define QUANT_SUPER_FORMATS(X, with) \
    X(Q2_K, q2_k, with)              \
    X(Q3_K, q3_k, with)              \
    X(Q4_K, q4_k, with)              \
    X(Q5_K, q5_k, with)              \
    X(Q6_K, q6_k, with)              \
    X(IQ4_XS, iq4_xs, with)          \
    X(Q8_16, q8_16, with)
// In files alone: read as Q8_16 (grid_formats.h).
#define QUANT_GRID_FORMATS(X, with) \
    X(IQ2_XXS, iq2_xxs, with)       \
    X(IQ2_XS, iq2_xs, with)         \
    X(IQ2_S, iq2_s, with)           \
    X(IQ3_XXS, iq3_xxs, with)       \
    X(IQ3_S, iq3_s, with)           \
    X(IQ1_S, iq1_s, with)           \
    X(IQ1_M, iq1_m, with)           \
    X(TQ1_0, tq1_0, with)           \
    X(TQ2_0, tq2_0, with)
// The same, from trellises; their rows have heads (kt_formats.h).
#define QUANT_KT_FORMATS(X, with) \
    X(IQ1_KT, iq1_kt, with)       \
    X(IQ2_KT, iq2_kt, with)       \
    X(IQ3_KT, iq3_kt, with)       \
    X(IQ4_KT, iq4_kt, with)
#define QUANT_FORMATS(X, with) QUANT_PLAIN_FORMATS(X, with) QUANT_BLOCK_FORMATS(X, with)

#define QUANT_ENUM(NAME, name, with) QUANT_##NAME,
enum quant {
    QUANT_FORMATS(QUANT_ENUM, ) N_WEIGHT_QUANTS,
    QUANT_LAST_WEIGHT = N_WEIGHT_QUANTS - 1, // the next one has the number behind it
    QUANT_GRID_FORMATS(QUANT_ENUM, ) QUANT_KT_FORMATS(QUANT_ENUM, ) N_READABLE_QUANTS, // of weights in files
    QUANT_I32 = N_READABLE_QUANTS, // tensors of integers in files and tests; never a weight
    QUANT_U8,                      // tensors of bytes in checkpoints: codes and scales of packed weights
    QUANT_I16,                     // tensors of words in checkpoints: codes of a trellis
    QUANT_EXL3, // matrices of such codes in memory (exl3.h), by codebook: of op_trellis alone
    QUANT_EXL3_MCG,
    QUANT_EXL3_MUL1,
    N_QUANTS,
};
