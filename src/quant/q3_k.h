// q3_k.h - 256 elements in 110 bytes: value = d * scale * q, q in -4..3, for each 16 elements a scale in
// -32..31.
//
// The low two bits lie as in Q2_K. Bit g of high[l] belongs to element 32 * g + l: set means q is not
// negative, that is, 4 is subtracted where it is clear. Scales are six bits, stored plus 32: the low four
// bits of scale i are a half of scales[i % 8] (high half from i = 8), the upper two are bits of scales[8 + i
// % 4].
#pragma once
#include "quant/half.h"

struct q3_k {
    u8 high[32];
    u8 q[64];
    u8 scales[12];
    u16 d;
};
STATIC_ASSERT(sizeof(struct q3_k) == 110);

SHARED_INLINE void q3_k_ints(BLOCK_IN struct q3_k *b, OWN_OUT i8 *q) // 256 integers, -4..3
{
    for (u32 i = 0; i < 256; i++) {
        int low = b->q[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
        int set = b->high[i % 32] >> i / 32 & 1;
        q[i] = (i8)(low - 4 + 4 * set);
    }
}

SHARED_INLINE int q3_k_scale(BLOCK_IN struct q3_k *b, u32 i) // i below 16; -32..31
{
    int low = b->scales[i % 8] >> i / 8 * 4 & 15, high = b->scales[8 + i % 4] >> i / 4 * 2 & 3;

    return (low | high << 4) - 32;
}

SHARED_INLINE void q3_k_decode(BLOCK_IN struct q3_k *b, OWN_OUT f32 *out)
{
    i8 q[256];
    f32 d = half_to_float(b->d);

    q3_k_ints(b, q);
    for (u32 g = 0; g < 16; g++) {
        f32 scale = d * (f32)q3_k_scale(b, g);
        for (u32 j = g * 16; j < g * 16 + 16; j++)
            out[j] = scale * (f32)q[j];
    }
}
