// trellis_tensor.h - matrices that a checkpoint holds as EXL3 (quant/exl3.h): NAME.trellis, NAME.suh,
// NAME.svh and perhaps a mark of the codebook stand for NAME.weight.
//
// Matrices that nothing but products reads stay codes in memory (ops/trellis, ops/trellis_experts). Others
// are read as F16, transforms and factors multiplied in: 16 bits a weight, and rounding to eleven bits (a
// squared error of 3e-8). So are a layer's experts where those of a kind differ in bits or codebook, as only
// a recipe by hand makes them.
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
// Whether the matrices of a stack have the same bits and codebook.
bool trellis_is_uniform(const struct joined_tensor *j);
struct weight_key;
// Whether nothing but products reads what this key names.
bool trellis_is_product(const struct weight_key *k);
// As model_tensor_read.
void trellis_read(const struct joined_tensor *j, uint64_t first, uint64_t n, uint16_t *to);

// In a device's memory. Of what stays codes QUANT_EXL3 and so on, else the tensor's own format.
enum quant trellis_kept_format(const struct file_tensor *t);
uint64_t trellis_kept_bytes(const struct file_tensor *t);
void trellis_kept_codes(const struct file_tensor *t, void *to); // those bytes, as exl3.h says
// When all is bound: the experts of a layer stay codes together or not at all.
void trellis_settle_experts(struct model *m);
