// row_scales.h - Q8_0 with one scale a row: what int8 products of many rows multiply by.
#pragma once
#include <stdint.h>

// Rewrites a row of n_cols numbers, blocks of Q8_0, such that all its blocks have one scale: the row's
// highest absolute value over 127, in fp16. A number moves by up to half of that scale. A row with a number
// that is not finite, or a scale beyond fp16, becomes NaN. `to` may be `blocks`.
void quant_row_scales(const void *blocks, void *to, uint32_t n_cols);
