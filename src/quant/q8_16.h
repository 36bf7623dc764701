// q8_16.h - 256 elements in 276 bytes: value = d * scale * q, q in -127..127, for each 16 elements a scale in
// -128..127. In memory only.
//
// What a file holds as points of a grid (grid_formats.h) is spread into these blocks when a model is loaded:
// every number of such a format is an integer times an integer times a float, so nothing is rounded. The
// price is memory, 8.6 bits a weight.
#pragma once
#include "quant/half.h"

struct q8_16 {
    f32 d;
    i8 scales[16];
    i8 q[256];
};
STATIC_ASSERT(sizeof(struct q8_16) == 276);

SHARED_INLINE void q8_16_decode(BLOCK_IN struct q8_16 *b, OWN_OUT f32 *out)
{
    for (u32 g = 0; g < 16; g++) {
        f32 scale = b->d * (f32)b->scales[g];
        for (u32 j = g * 16; j < g * 16 + 16; j++)
            out[j] = scale * (f32)b->q[j];
    }
}
