// q5_0.h - 32 elements in 22 bytes: value = d * (q - 16), q in 0..31.
//
// The low four bits lie as in Q4_0; the fifth bit of element j is bit j of `high`, read as one little-endian
// number.
#pragma once
#include "quant/half.h"

struct q5_0 {
    u16 d;
    u8 high[4];
    u8 q[16];
};
STATIC_ASSERT(sizeof(struct q5_0) == 22);

SHARED_INLINE void q5_0_ints(BLOCK_IN struct q5_0 *b, OWN_OUT i8 *q) // 32 integers, -16..15
{
    for (u32 j = 0; j < 16; j++) {
        u32 first = b->high[j / 8] >> j % 8 & 1, second = b->high[2 + j / 8] >> j % 8 & 1;
        q[j] = (i8)((int)((b->q[j] & 15) | first << 4) - 16);
        q[j + 16] = (i8)((int)((b->q[j] >> 4) | second << 4) - 16);
    }
}

SHARED_INLINE void q5_0_decode(BLOCK_IN struct q5_0 *b, OWN_OUT f32 *out)
{
    i8 q[32];
    f32 d = half_to_float(b->d);

    q5_0_ints(b, q);
    for (u32 j = 0; j < 32; j++)
        out[j] = d * (f32)q[j];
}
