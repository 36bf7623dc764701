// listed_choice.c - which kernel multiplies rows at listed places, and why; see listed_choice.h.
//
//   variant  rows of a step   rows of a tile   reason
//   one      1                1                each matrix has one row
//   few      2-32             8                32 rows of 8 experts are two for each of 128: weights are what
//                                              counts, and a lane decodes a piece of them once for all rows
//   many     33+              32               more than 8 rows of a tile by simdgroup matrices: product_many
//   with
//                                              half its rows, since of a prompt of 512 an expert has 32
//   plain    any              16               widths that are no multiple of 8
//
// exact and invariant: `few` takes more than 32 rows too. A row has the bits of `one` there.
#include "gemm/metal/listed_choice.h"

enum { LEAST_MANY_ROWS = 33 };

const struct listed_shape listed_shapes[N_LISTED_VARIANTS] = {
    [LISTED_ONE] = { ROWS_PAIRS, 1, 128 },
    [LISTED_FEW] = { ROWS_PAIRS, EIGHT_ROWS, 128 },
    [LISTED_MANY_HALF] = { TILE_PAIRS, LISTED_ROWS, 128 },
    [LISTED_MANY_FLOAT] = { TILE_PAIRS, LISTED_ROWS, 128 },
    [LISTED_PLAIN] = { PLAIN_SIDE, PLAIN_SIDE, PLAIN_SIDE *PLAIN_SIDE },
};

enum listed_variant listed_choose(struct metal_plan *p, const struct listed_product *product)
{
    bool half = true;

    for (uint32_t i = 0; i < 4; i++) {
        const struct weight *w = product->w[i];
        if (w)
            product_weight_fits(p, w);
        half = half && !(w && (w->format == QUANT_F32 || w->format == QUANT_BF16));
    }
    if (product->odd)
        return LISTED_PLAIN;
    if (p->tape.max_rows == 1)
        return LISTED_ONE;
    if (p->tape.max_rows < LEAST_MANY_ROWS || product->exact || p->tape.invariant)
        return LISTED_FEW;
    return half ? LISTED_MANY_HALF : LISTED_MANY_FLOAT;
}

static const struct weight *matrix(const struct weight *const w[2], uint32_t i)
{
    return i < 2 && w[i] ? w[i] : w[0];
}

struct product_args listed_args(const struct weight *const w[2], uint32_t n_matrices)
{
    struct product_args args = { .n_cols = w[0]->n_cols, .rows = ROWS_STEP };

    for (uint32_t i = 0; i < 3; i++) {
        args.n_out[i] = matrix(w, i)->n_rows / n_matrices;
        args.row_bytes[i] = (uint32_t)(matrix(w, i)->bytes / matrix(w, i)->n_rows);
    }
    return args;
}

void listed_constants(const struct weight *const w[2], enum product_mode mode, struct metal_kernel *kernel)
{
    kernel->n_constants = PRODUCT_N_CONSTANTS;
    kernel->constants[PRODUCT_C_MODE] = mode;
    for (uint32_t i = 0; i < 3; i++)
        kernel->constants[PRODUCT_C_FORMAT + i] = matrix(w, i)->format;
    kernel->constants[PRODUCT_C_LISTED] = 1;
}
