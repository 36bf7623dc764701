// matmul: out[r][n] = sum over k of in[r][k] * w[n][k]  (+ bias[n])  (+ add[r][n])
//
// w is read in its own format; it is never expanded in memory. The order of the sum over k depends on n_cols
// and the format alone. exact keeps the activations in fp32; else they may be rounded to int8 with a scale
// per block of 32 or 256 (normalised squared error of a product about 1e-4, at most 5e-4). add and out may be
// the same tensor.
// Limits: n_cols a multiple of the format's block.
#pragma once
#include "base/lang.h"
#include "ops/lora/lora.h"

struct matmul_args {
    u32 n_rows, n_cols; // of w
    u32 rows;           // enum tensor_rows
    u32 exact;
};
STATIC_ASSERT(sizeof(struct matmul_args) == 16);

// Operand numbers, for the kernels.
enum { MATMUL_IN, MATMUL_W, MATMUL_BIAS, MATMUL_ADD, MATMUL_WORK, MATMUL_OUT };

// Columns (of 4 bytes) of workspace per row: packed activations of n_cols. Twice fp16 of them plus scales.
SHARED_INLINE u32 matmul_work_cols(u32 n_cols)
{
    return n_cols + 64;
}

// matmul_activated: out[r][n] = f(sum over k of in[r][k] * w[n][k]  (+ bias[n])), f as in activate. The same
// operands, without add; in parts a matmul and an activate.
struct matmul_activated_args {
    struct matmul_args product;
    u32 activation; // enum activation
    u32 reserved[3];
};
STATIC_ASSERT(sizeof(struct matmul_activated_args) == 32);

// matmul_three: out[i][r][n] = sum over k of in[r][k] * w[i][n][k]  (+ bias[i][n]) for three matrices of one
// shape and format, as q, k and v of an encoder. matmul's arguments. In parts three matmuls.
enum { THREE_IN, THREE_W, THREE_BIAS = THREE_W + 3, THREE_WORK = THREE_BIAS + 3, THREE_OUT };

// matmul_normed: n = rmsnorm(in) * norm;  out = n W^T;  with `more`: more = n V^T;  with `last` behind it:
// last = n U^T. In parts, also where adapters add to a product, rmsnorm and matmuls. The weights may have
// unlike formats.
struct matmul_normed_args {
    u32 n_cols, n_rows, n_more; // of all, of W, of V
    f32 eps;
    u32 exact;
    u32 n_last; // of U
    u32 reserved[2];
};
STATIC_ASSERT(sizeof(struct matmul_normed_args) == 32);

enum {
    NORMED_IN,
    NORMED_NORM,
    NORMED_W,
    NORMED_V,
    NORMED_U,
    NORMED_WORK,
    NORMED_OUT,
    NORMED_MORE,
    NORMED_LAST
};

// matmul_adapted: with what adapters add to the product (ops/lora/lora.h); in parts a matmul and a lora.
struct matmul_adapted_args {
    struct matmul_args product;
    struct adapted_args adapters;
};
STATIC_ASSERT(sizeof(struct matmul_adapted_args) == 32);
enum { MATMUL_ADAPTERS = MATMUL_OUT + 1 }; // their operands

#ifdef HOST_C
#include "device/tape.h"
#include "gemm/gemm.h"

struct matmul {
    struct tensor out;         // [rows, w rows]
    struct tensor in;          // [rows, w cols]
    const struct weight *w;    // [w rows, w cols]
    const struct weight *bias; // [w rows] fp32, or NULL
    struct tensor add;         // [rows, w rows], or id 0
};
// With what adapters of w add to it (ops/lora).
void op_matmul(struct tape *t, struct matmul m);
// Without that, for several products of the same rows, behind which one lora adds to all.
void matmul_record_plain(struct tape *t, struct matmul m);
// n products of the same input, in one command where the device has one for them.
void matmul_record_joined(struct tape *t, const struct matmul *m, uint32_t n);
void op_matmul_activated(struct tape *t, struct matmul m, enum activation activation);

struct matmul_three {
    struct tensor out[3];         // [rows, w rows] each
    struct tensor in;             // [rows, w cols]
    const struct weight *w[3];    // [w rows, w cols]
    const struct weight *bias[3]; // [w rows] fp32, or NULL
};
void op_matmul_three(struct tape *t, struct matmul_three m);

struct matmul_normed {
    struct tensor out, more, last;  // [rows, w rows], and [rows, v rows] and [rows, u rows] or id 0
    struct tensor in;               // [rows, w cols]
    const struct weight *norm;      // [w cols] fp32
    const struct weight *w, *v, *u; // [w rows, w cols], and [v rows, w cols] and [u rows, w cols] or NULL
    float eps;
};
void op_matmul_normed(struct tape *t, struct matmul_normed m);

// Checks shared with the fused operations: false after tape_fail.
bool matmul_fits(struct tape *t, const char *op, const struct weight *w, uint32_t n_cols, uint32_t n_out);
bool matmul_vector_fits(struct tape *t, const char *op, const struct weight *w, uint32_t n); // NULL fits
// Whether the matrix is multiplied by matmul alone, and has this shape.
bool matmul_is_plain(const struct weight *w, uint32_t n_rows, uint32_t n_cols);
// The definition of one output, shared with the fused operations' plain kernels: a row of w decoded to fp32,
// then a plain sum. decoded has room for n_cols floats.
void matmul_decode_row(const struct weight *w, uint32_t n, float *decoded);
float matmul_dot_plain(const float *in, const float *w, uint32_t n_cols);
float matmul_row_plain(const float *in, const struct weight *w, uint32_t n, float *decoded); // both
#endif
