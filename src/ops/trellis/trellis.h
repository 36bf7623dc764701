// trellis: out[r][n] = svh[n] * (H y)[n]  (+ bias[n])  (+ add[r][n]),  y[o] = sum over i of (H (suh *
// in[r]))[i] * w[i][o]
//
// matmul with a matrix of EXL3 (quant/exl3.h), whose codes stay as they are: 1 to 8 bits a weight in memory,
// decoded where they are multiplied. H is the Hadamard matrix of 128 over sqrt(128) on each 128 numbers. Rows
// and columns are padded with zeros to whole blocks of 128. The order of a sum depends on the matrix alone.
// exact keeps activations in fp32; else they may be rounded to fp16, or with the codebook MUL1 to int8, with
// a scale for each row and share of the columns.
// The operands are matmul's; those of work are private. op_matmul and what it is part of record it.
#pragma once
#include "base/lang.h"
#include "quant/exl3.h"

struct trellis_args {
    u32 n_rows, n_cols; // of w, without the padding
    u32 rows;           // enum tensor_rows
    u32 exact;
    u32 bits, codebook; // enum exl3_codebook
    u32 reserved[2];
};
STATIC_ASSERT(sizeof(struct trellis_args) == 32);

#ifdef HOST_C
#include "ops/matmul/matmul.h"

static inline bool trellis_multiplies(const struct weight *w)
{
    return w->format >= QUANT_EXL3 && w->format <= QUANT_EXL3_MUL1;
}
void op_trellis(struct tape *t, struct matmul m);
#endif
