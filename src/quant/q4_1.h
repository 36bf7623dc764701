// q4_1.h - 32 elements in 20 bytes: value = d * q + m, q in 0..15.
//
// Byte j holds element j in its low half and element j + 16 in its high half.
#pragma once
#include "quant/half.h"

struct q4_1 {
    u16 d, m;
    u8 q[16];
};
STATIC_ASSERT(sizeof(struct q4_1) == 20);

SHARED_INLINE void q4_1_ints(BLOCK_IN struct q4_1 *b, OWN_OUT i8 *q) // 32 integers, 0..15
{
    for (u32 j = 0; j < 16; j++) {
        q[j] = (i8)(b->q[j] & 15);
        q[j + 16] = (i8)(b->q[j] >> 4);
    }
}

SHARED_INLINE void q4_1_decode(BLOCK_IN struct q4_1 *b, OWN_OUT f32 *out)
{
    i8 q[32];
    f32 d = half_to_float(b->d), m = half_to_float(b->m);

    q4_1_ints(b, q);
    for (u32 j = 0; j < 32; j++)
        out[j] = d * (f32)q[j] + m;
}
