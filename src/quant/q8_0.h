// q8_0.h - 32 elements in 34 bytes: value = d * q, q in -128..127.
#pragma once
#include "quant/half.h"

struct q8_0 {
    u16 d;
    i8 q[32];
};
STATIC_ASSERT(sizeof(struct q8_0) == 34);

SHARED_INLINE void q8_0_decode(BLOCK_IN struct q8_0 *b, OWN_OUT f32 *out)
{
    f32 d = half_to_float(b->d);

    for (u32 j = 0; j < 32; j++)
        out[j] = d * (f32)b->q[j];
}
