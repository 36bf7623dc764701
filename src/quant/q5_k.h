// q5_k.h - 256 elements in 176 bytes: value = d * scale * q - dmin * min, q in 0..31, for each 32 elements a
// scale and a min.
//
// Scales, mins and the low four bits lie as in Q4_K. The fifth bit of element 32 * g + l is bit g of high[l].
#pragma once
#include "quant/q4_k.h"

struct q5_k {
    u16 d, dmin;
    u8 scales[12];
    u8 high[32];
    u8 q[128];
};
STATIC_ASSERT(sizeof(struct q5_k) == 176);

SHARED_INLINE void q5_k_ints(BLOCK_IN struct q5_k *b, OWN_OUT i8 *q) // 256 integers, 0..31
{
    for (u32 i = 0; i < 128; i++) {
        u32 at = i / 32 * 64 + i % 32, bits = (u32)b->high[i % 32] >> i / 32 * 2;
        q[at] = (i8)((b->q[i] & 15) | (bits & 1) << 4);
        q[at + 32] = (i8)(b->q[i] >> 4 | (bits >> 1 & 1) << 4);
    }
}

SHARED_INLINE void q5_k_decode(BLOCK_IN struct q5_k *b, OWN_OUT f32 *out)
{
    i8 q[256];
    f32 d = half_to_float(b->d), dmin = half_to_float(b->dmin);

    q5_k_ints(b, q);
    for (u32 g = 0; g < 8; g++) {
        struct q4_k_pair p = q4_k_scale(b->scales, g);
        f32 scale = d * (f32)p.scale, min = dmin * (f32)p.min;
        for (u32 j = g * 32; j < g * 32 + 32; j++)
            out[j] = scale * (f32)q[j] - min;
    }
}
