// int8_rows.h - rows of activations as int8, for products with quantised weights: in blocks as long as the
// weights', 32 columns or 256.
//
// In a block of 256 the largest number sets the scale, and each 32 of them may halve it up to SUPER_BITS
// times. A kernel then shifts integers where it would multiply by another scale, and an int8 product is bound
// by multiplications: 78 instructions for two pipes instead of 88 for 256 columns of Q4_K. The error is at
// most that of one scale for all 256, as other engines have it.
#pragma once
#include "gemm/cpu/panel.h"

// A row in PACKING_INT8 is four arrays, one behind the other: q of all columns, then the others of all blocks
// of 32. So the 32 bytes of a block, which a tile of AMX loads from each row, lie in one cache line.
struct product_block { // value = scale * q
    int8_t *q;         // [32]
    float *scale;
    int32_t *minus_sum; // minus the sum of all q: the start value of accumulators
    float *sum;         // scale * sum of q, for formats with a minimum
};
static inline struct product_block product_block(const void *row, uint32_t n_cols, uint32_t block)
{
    unsigned char *q = (unsigned char *)(uintptr_t)row, *ends = q + n_cols + block * sizeof(float);
    uint32_t bytes = n_cols / PANEL_SUB * (uint32_t)sizeof(float);
    return (struct product_block){ (int8_t *)q + (size_t)block * PANEL_SUB, (float *)(void *)ends,
                                   (int32_t *)(void *)(ends + bytes), (float *)(void *)(ends + 2 * bytes) };
}

enum { SUPER_BITS = 5, SUPER_SUBS = PANEL_SUPER / PANEL_SUB };
struct product_super { // 256 columns of a row in PACKING_INT8_SUPER: value = scale * (q << left of its 32)
    int8_t q[PANEL_SUPER];
    int32_t left[SUPER_SUBS];          // 0 to SUPER_BITS
    int32_t minus_sum[2 * SUPER_SUBS]; // of each 16
    // For minimums, of each 32 and each 16: the sum of q << left, divided by 4 to fit. In the panels' order
    // of pairs: 0 2 1 3, 4 6 5 7, ...
    int16_t sums_32[SUPER_SUBS], sums_16[2 * SUPER_SUBS];
    float scale;
};
enum { SUPER_SUM_SHIFT = 2 };

// The vector part, 32 numbers at a time, given by each set of kernels.
struct int8_kernels {
    float (*top)(const float *x); // the largest magnitude; a NaN is larger than any number
    void (*round)(const float *x, float factor, int8_t *out); // factor * x
};
void int8_blocks(const struct int8_kernels *k, const float *x, uint32_t n, void *out);
void int8_supers(const struct int8_kernels *k, const float *x, uint32_t n, struct product_super *out);
