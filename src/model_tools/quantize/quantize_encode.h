// quantize_encode.h - blocks from fp32, for every format that quantize writes. Private to quantize and its
// tests.
#pragma once
#include <stddef.h>
#include "quant/quant.h"

struct quantize_source {
    const float *x;
    const float *importance; // of each element's column, above or equal 0; NULL: all count alike
    size_t n;                // a multiple of the block
};

bool quantize_can_encode(enum quant q);
// False: x[*bad] is NaN, infinite or too large for the format.
bool quantize_encode(enum quant q, const struct quantize_source *from, void *blocks, size_t *bad);

// Rounds x to an fp16 number, and returns that.
float quantize_half(float x, uint16_t *half);

// One block. importance may be NULL.
typedef void quantize_block(const float *x, const float *importance, void *block);
quantize_block quantize_encode_k_q2_k, quantize_encode_k_q3_k, quantize_encode_k_q4_k, quantize_encode_k_q5_k,
    quantize_encode_k_q6_k, quantize_encode_k_iq4_xs; // quantize_encode_k.c
