// iq4_xs.h - 256 elements in 136 bytes: value = d * scale * level(q), the levels of IQ4_NL, for each 32 a
// scale in -32..31.
//
// Scales have six bits, stored plus 32: four in scales_low (two groups to a byte), two in scales_high. Each
// group's 16 bytes lie as in Q4_0.
#pragma once
#include "quant/iq4_nl.h"

struct iq4_xs {
    u16 d;
    u16 scales_high;
    u8 scales_low[4];
    u8 q[128];
};
STATIC_ASSERT(sizeof(struct iq4_xs) == 136);

SHARED_INLINE int iq4_xs_scale(BLOCK_IN struct iq4_xs *b, u32 group) // group below 8; -32..31
{
    int low = b->scales_low[group / 2] >> group % 2 * 4 & 15, high = b->scales_high >> group * 2 & 3;

    return (low | high << 4) - 32;
}

SHARED_INLINE void iq4_xs_ints(BLOCK_IN struct iq4_xs *b, OWN_OUT i8 *q) // 256 integers, -127..113
{
    for (u32 i = 0; i < 128; i++) {
        u32 at = i / 16 * 32 + i % 16;
        q[at] = iq4_nl_level(b->q[i] & 15u);
        q[at + 16] = iq4_nl_level((u32)b->q[i] >> 4);
    }
}

SHARED_INLINE void iq4_xs_decode(BLOCK_IN struct iq4_xs *b, OWN_OUT f32 *out)
{
    i8 q[256];
    f32 d = half_to_float(b->d);

    iq4_xs_ints(b, q);
    for (u32 g = 0; g < 8; g++) {
        f32 scale = d * (f32)iq4_xs_scale(b, g);
        for (u32 j = g * 32; j < g * 32 + 32; j++)
            out[j] = scale * (f32)q[j];
    }
}
