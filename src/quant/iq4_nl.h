// iq4_nl.h - 32 elements in 18 bytes: value = d * level(q), sixteen levels that are not evenly spaced.
//
// The layout is that of Q4_0. The levels are denser around zero, where weights are. IQ4_XS shares them.
#pragma once
#include "quant/half.h"

// For tables in kernels; iq4_nl_level is the same as an expression, which needs no table in any address
// space.
#define IQ4_NL_LEVELS                                                            \
    {                                                                            \
        -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 \
    }

struct iq4_nl {
    u16 d;
    u8 q[16];
};
STATIC_ASSERT(sizeof(struct iq4_nl) == 18);

SHARED_INLINE i8 iq4_nl_level(u32 q) // q below 16
{
    u64 levels = q < 8 ? (u64)0xf6eaddcfbfad9881 : (u64)0x7159453526190d01;
    return (i8)(levels >> q % 8 * 8 & 255);
}

SHARED_INLINE void iq4_nl_ints(BLOCK_IN struct iq4_nl *b, OWN_OUT i8 *q) // 32 integers, -127..113
{
    for (u32 j = 0; j < 16; j++) {
        q[j] = iq4_nl_level(b->q[j] & 15u);
        q[j + 16] = iq4_nl_level((u32)b->q[j] >> 4);
    }
}

SHARED_INLINE void iq4_nl_decode(BLOCK_IN struct iq4_nl *b, OWN_OUT f32 *out)
{
    i8 q[32];
    f32 d = half_to_float(b->d);

    iq4_nl_ints(b, q);
    for (u32 j = 0; j < 32; j++)
        out[j] = d * (f32)q[j];
}
