// q4_0.h - 32 elements in 18 bytes: value = d * (q - 8), q in 0..15.
//
// Byte j holds element j in its low half and element j + 16 in its high half.
#pragma once
#include "quant/half.h"

struct q4_0 {
    u16 d;
    u8 q[16];
};
STATIC_ASSERT(sizeof(struct q4_0) == 18);

SHARED_INLINE void q4_0_ints(BLOCK_IN struct q4_0 *b, OWN_OUT i8 *q) // 32 integers, -8..7
{
    for (u32 j = 0; j < 16; j++) {
        q[j] = (i8)((b->q[j] & 15) - 8);
        q[j + 16] = (i8)((b->q[j] >> 4) - 8);
    }
}

SHARED_INLINE void q4_0_decode(BLOCK_IN struct q4_0 *b, OWN_OUT f32 *out)
{
    i8 q[32];
    f32 d = half_to_float(b->d);

    q4_0_ints(b, q);
    for (u32 j = 0; j < 32; j++)
        out[j] = d * (f32)q[j];
}
