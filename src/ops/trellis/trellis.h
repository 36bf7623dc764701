// trellis: for each of up to three matrices w of the same columns:
//   out[r][n] = svh[n] * (H y)[n]  (+ bias[n])  (+ add[r][n]),  y[o] = sum over i of (H (suh * in[r]))[i] *
//   w[i][o]
//
// matmul with matrices of EXL3 (quant/exl3.h), whose codes stay as they are: 1 to 8 bits a weight in memory,
// decoded where they are multiplied. H is the Hadamard matrix of 128 over sqrt(128) on each 128 numbers. Rows
// and columns are padded with zeros to whole blocks of 128. The order of a sum depends on the matrices alone.
// exact keeps activations in fp32; else they may be rounded to fp16, or with the codebook MUL1 to int8, with
// a scale for each row and share of the columns.
// The operands are matmul's, those behind `in` for each matrix; those of work are private. op_matmul and what
// it is part of record it.
#pragma once
#include "base/lang.h"
#include "quant/exl3.h"

enum { TRELLIS_MATRICES = 3 };
struct trellis_args {
    u32 n_rows[TRELLIS_MATRICES]; // of each matrix, without the padding; 0: there is none
    u32 n_cols;
    u32 rows; // enum tensor_rows
    u32 exact;
    u32 bits, codebook; // enum exl3_codebook
};
STATIC_ASSERT(sizeof(struct trellis_args) == 32);

// Operand numbers, for the kernels: of the first matrix; those of the next lie TRELLIS_OPERANDS further.
enum { TRELLIS_IN, TRELLIS_W, TRELLIS_BIAS, TRELLIS_ADD, TRELLIS_WORK, TRELLIS_OUT, TRELLIS_OPERANDS = 5 };

#ifdef HOST_C
#include "ops/matmul/matmul.h"

static inline bool trellis_multiplies(const struct weight *w)
{
    return w->format >= QUANT_EXL3 && w->format <= QUANT_EXL3_MUL1;
}
static inline uint32_t trellis_n_matrices(const struct trellis_args *a)
{
    return 1 + (a->n_rows[1] > 0) + (a->n_rows[2] > 0);
}
// Whether one command multiplies n matrices by the same activations: all have codes of the same kind.
bool trellis_joins(const struct tape *t, const struct matmul *m, uint32_t n);
void op_trellis(struct tape *t, const struct matmul *m, uint32_t n);
#endif
