// trellis_transform.h - a matrix as the trellis codes it: inputs are rows, scaled and turned by Hadamard
// transforms, so that its numbers are nearly normal; and the factors that undo it (quant/exl3.h).
#pragma once
#include "base/thread_pool.h"

struct trellis_transform {
    const float *w;                   // [rows, cols], one row per output
    uint32_t rows, cols, n_in, n_out; // n_in, n_out: cols and rows, padded to 128
    float gain;                       // the numbers' size becomes 1 / gain
    uint64_t seed;                    // of the signs
    float *to;                        // [n_in, n_out]
    uint16_t *suh, *svh;              // halves: [n_in], [n_out]
};

void trellis_transform(const struct trellis_transform *t, struct thread_pool *pool);

uint64_t trellis_draw(uint64_t *state); // 64 random bits
