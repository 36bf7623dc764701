// trellis.h - matrices that a checkpoint holds as EXL3 (quant/exl3.h): NAME.trellis, NAME.suh, NAME.svh and
// perhaps a mark of the codebook stand for NAME.weight.
//
// They are read as F16, transforms and factors multiplied in: products know nothing of them, and each device
// runs them. The price is memory, 16 bits a weight, and rounding to eleven bits (a squared error of 3e-8).
#pragma once
#include "models/model.h"
#include "quant/exl3.h"

// The parts of one matrix.
struct trellis {
    const struct file_tensor *codes, *suh, *svh, *mark; // mark: NULL: the first codebook
    enum exl3_codebook codebook;
};

// The codes that stand for this tensor, "NAME.weight"; NULL: the file has none.
const struct file_tensor *trellis_find(const struct model_file *file, const char *name);
static inline bool trellis_is(const struct file_tensor *t)
{
    return t->format == QUANT_I16 && str_ends(t->name, STR(".trellis"));
}
// Finds the other parts and checks that they make a matrix of these rows and columns.
bool trellis_bind(struct trellis *t, const struct model_file *file, const struct file_tensor *codes,
                  uint32_t rows, uint32_t cols, struct err *err);
// As model_tensor_read.
void trellis_read(const struct joined_tensor *j, uint64_t first, uint64_t n, uint16_t *to);
