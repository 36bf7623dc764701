// q5_1.h - 32 elements in 24 bytes: value = d * q + m, q in 0..31.
//
// The low four bits lie as in Q4_1; the fifth bit of element j is bit j of `high`, read as one little-endian
// number.
#pragma once
#include "quant/half.h"

struct q5_1 {
    u16 d, m;
    u8 high[4];
    u8 q[16];
};
STATIC_ASSERT(sizeof(struct q5_1) == 24);

SHARED_INLINE void q5_1_ints(BLOCK_IN struct q5_1 *b, OWN_OUT i8 *q) // 32 integers, 0..31
{
    for (u32 j = 0; j < 16; j++) {
        u32 first = b->high[j / 8] >> j % 8 & 1, second = b->high[2 + j / 8] >> j % 8 & 1;
        q[j] = (i8)((b->q[j] & 15) | first << 4);
        q[j + 16] = (i8)((b->q[j] >> 4) | second << 4);
    }
}

SHARED_INLINE void q5_1_decode(BLOCK_IN struct q5_1 *b, OWN_OUT f32 *out)
{
    i8 q[32];
    f32 d = half_to_float(b->d), m = half_to_float(b->m);

    q5_1_ints(b, q);
    for (u32 j = 0; j < 32; j++)
        out[j] = d * (f32)q[j] + m;
}
