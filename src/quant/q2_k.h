// q2_k.h - 256 elements in 84 bytes: value = d * scale * q - dmin * min, q in 0..3, for each 16 elements a
// scale and a min.
//
// A scale byte holds the scale (0..15) in its low half and the min (0..15) in its high half. The 64 bytes of
// q are two runs of 32; bits 2j and 2j + 1 of a run's byte l are element 32 * j + l of that run's 128
// elements.
#pragma once
#include "quant/half.h"

struct q2_k {
    u8 scales[16];
    u8 q[64];
    u16 d, dmin;
};
STATIC_ASSERT(sizeof(struct q2_k) == 84);

SHARED_INLINE void q2_k_ints(BLOCK_IN struct q2_k *b, OWN_OUT i8 *q) // 256 integers, 0..3
{
    for (u32 i = 0; i < 256; i++)
        q[i] = (i8)(b->q[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3);
}

SHARED_INLINE void q2_k_decode(BLOCK_IN struct q2_k *b, OWN_OUT f32 *out)
{
    i8 q[256];
    f32 d = half_to_float(b->d), dmin = half_to_float(b->dmin);

    q2_k_ints(b, q);
    for (u32 g = 0; g < 16; g++) {
        f32 scale = d * (f32)(b->scales[g] & 15), min = dmin * (f32)(b->scales[g] >> 4);
        for (u32 j = g * 16; j < g * 16 + 16; j++)
            out[j] = scale * (f32)q[j] - min;
    }
}
