// q6_k.h - 256 elements in 210 bytes: value = d * scale * q, q in -32..31, for each 16 elements a scale in
// -128..127.
//
// Each half of 128 elements has 64 bytes of low four bits and 32 bytes of high two bits. Element 32 * j + l
// of a half has its low bits in byte 32 * (j % 2) + l (low half of the byte for j < 2) and its high bits at 2
// * j of high byte l. d comes last.
#pragma once
#include "quant/half.h"

struct q6_k {
    u8 low[128];
    u8 high[64];
    i8 scales[16];
    u16 d;
};
STATIC_ASSERT(sizeof(struct q6_k) == 210);

SHARED_INLINE void q6_k_ints(BLOCK_IN struct q6_k *b, OWN_OUT i8 *q) // 256 integers, -32..31
{
    for (u32 i = 0; i < 256; i++) {
        u32 half_at = i / 128, j = i % 128 / 32, l = i % 32;
        int low = b->low[half_at * 64 + j % 2 * 32 + l] >> j / 2 * 4 & 15,
            high = b->high[half_at * 32 + l] >> 2 * j & 3;
        q[i] = (i8)((low | high << 4) - 32);
    }
}

SHARED_INLINE void q6_k_decode(BLOCK_IN struct q6_k *b, OWN_OUT f32 *out)
{
    i8 q[256];
    f32 d = half_to_float(b->d);

    q6_k_ints(b, q);
    for (u32 g = 0; g < 16; g++) {
        f32 scale = d * (f32)b->scales[g];
        for (u32 j = g * 16; j < g * 16 + 16; j++)
            out[j] = scale * (f32)q[j];
    }
}
