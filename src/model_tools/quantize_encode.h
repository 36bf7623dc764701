// quantize_encode.h - encodes fp32 as blocks, one row at a time. Private to quantize and its tests.
//
// The result depends on the row alone: any number of threads gives the same file.
#pragma once
#include "quant/quant.h"

// Whether there is an encoder: F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q5_K Q6_K.
bool quantize_can_encode(enum quant q);
// n elements, a multiple of the block. False when one is not finite, or too large for F16; *bad is its index.
bool quantize_encode(enum quant q, const float *x, void *blocks, size_t n, size_t *bad);
