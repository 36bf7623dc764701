// joined.h - tensors whose numbers are read from parts of the file, or changed while reading.
#pragma once
#include "models/model.h"

// A matrix that no kernel multiplies as it lies in the file: a layer's experts, not one after the other, or a
// format that is spread (quant_kernel_format). It has its shape and no data; model_tensor_read joins it. Each
// matrix is a part, or one part holds all: n_halves times the rows, of which the `half`-th are used, or
// slice_rows, from slice_first on, or of longer rows the columns from first_col on. A part may be joined
// itself. A stack may begin at a later matrix of the part. Transposed matrices of blocks are read as fp32.
struct joined_tensor {
    struct file_tensor tensor;        // first; of EXL3 as F16
    const struct file_tensor **parts; // [n_parts]
    uint32_t n_parts, rows, cols;     // rows, cols: of one matrix
    uint32_t n_halves, half, slice_rows, slice_first;
    uint32_t first_matrix;            // of the part's
    uint32_t all_cols, first_col;     // of the rows in the part, where they are longer; 0: they are not
    bool alternate, transposed;       // the rows of the halves do; matrices are [cols, rows]
    bool plus_one;                    // the sum of its one part's numbers and 1, in fp32
    const struct file_tensor *scales; // of MXFP4, whose numbers the part has; else NULL
    struct trellis *trellis;          // [n_parts] of EXL3, which is read as F16; else NULL
    bool stays_codes;                 // of EXL3: or is multiplied as it is
    const struct joined_tensor *next;
};

// One of m's, empty, with room for n_parts; model_release frees it. NULL without memory.
struct joined_tensor *joined_create(struct model *m, uint32_t n_parts);
