// quant.h - the number formats of weights: names, block sizes, and decoding of whole rows to fp32.
//
// Each format has a header of its own (q4_0.h, ...) with the layout of one block and its decode, shared by C,
// CUDA and MSL. The layouts are those of GGUF, little-endian. Encoding lives in
// src/model_tools/quantize/quantize.c alone.
//
// A row is its blocks, one behind the other; in a few formats a head comes before them (kt_formats.h). What
// reads more than one row, or from a row's middle, goes through quant_read.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/str.h"
#include "quant/formats.h"

// The places of a block's halves, a scale and perhaps a second one, and their values in random weights, so
// that values are near 0.02. Of a format whose rows have heads: usual[0] is the head.
struct quant_halves {
    uint16_t at[2];
    float usual[2];
};

struct quant_info {
    const char *name;        // "Q4_K", as llama.cpp and users spell it
    uint32_t ggml_id;        // the number in a GGUF file
    uint32_t block_elements; // 1 for plain numbers
    uint32_t block_bytes;
    // n elements, a multiple of block_elements, from a row's beginning; several rows where there are no heads
    void (*decode)(const void *row, float *out, size_t n);
    struct quant_halves halves;
    // Of a format that no kernel multiplies: n elements of the row, from `first` on, in the format that
    // stands for it; else NULL. Both are multiples of block_elements.
    void (*spread)(const void *row, uint64_t first, void *out, size_t n);
    uint32_t head_bytes; // of what a row begins with: its scale in fp32; 0 in most formats
};
const struct quant_info *quant_info(enum quant q); // CHECKs the range

// The format in which kernels multiply weights of this one: itself, or the one that its info spreads to.
enum quant quant_kernel_format(enum quant q);

bool quant_in_files(enum quant q); // false: a format of memory alone

// Bytes of n_rows rows. False when n_cols is no multiple of the block or the product overflows.
bool quant_bytes(enum quant q, uint64_t n_rows, uint64_t n_cols, uint64_t *bytes);
uint64_t quant_row_bytes(enum quant q, uint64_t n_cols); // of a row that quant_bytes has taken

// Numbers as a file holds them, row by row.
struct quant_rows {
    enum quant format;
    const void *data;
    uint64_t n_cols;
};
// n elements from `first` on as fp32, of any rows; both are multiples of the block's elements.
void quant_read(const struct quant_rows *rows, uint64_t first, float *out, size_t n);

bool quant_from_name(struct str name, enum quant *q); // any case; false when unknown
bool quant_from_ggml_id(uint32_t id, enum quant *q);

float quant_half_to_float(uint16_t half);  // exact, subnormals, infinities and NaN too
uint16_t quant_float_to_half(float value); // round to nearest even
static inline float quant_bf16_to_float(uint16_t b)
{
    union {
        uint32_t u;
        float f;
    } v = { .u = (uint32_t)b << 16 };
    return v.f;
}
uint16_t quant_float_to_bf16(float value); // round to nearest even; NaN stays NaN
