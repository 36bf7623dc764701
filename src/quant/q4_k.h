// q4_k.h - 256 elements in 144 bytes: value = d * scale * q - dmin * min, q in 0..15, for each 32 elements a
// scale and a min.
//
// Scales and mins have six bits. Those of the groups 0..3 are the low six bits of bytes 0..3 (scales) and
// 4..7 (mins); those of the groups 4..7 have their low four bits in the halves of bytes 8..11 and their upper
// two in the top of bytes 0..7. Each run of 32 bytes of q holds 64 elements: first the low halves, then the
// high halves. Q5_K shares the scales.
#pragma once
#include "quant/half.h"

struct q4_k {
    u16 d, dmin;
    u8 scales[12];
    u8 q[128];
};
STATIC_ASSERT(sizeof(struct q4_k) == 144);

struct q4_k_pair {
    u8 scale, min; // 0..63
};

SHARED_INLINE struct q4_k_pair q4_k_scale(BLOCK_IN u8 *scales, u32 group) // group below 8
{
    struct q4_k_pair p;

    if (group < 4) {
        p.scale = scales[group] & 63;
        p.min = scales[group + 4] & 63;
    } else {
        p.scale = (u8)((scales[group + 4] & 15) | scales[group - 4] >> 6 << 4);
        p.min = (u8)(scales[group + 4] >> 4 | scales[group] >> 6 << 4);
    }
    return p;
}

SHARED_INLINE void q4_k_ints(BLOCK_IN struct q4_k *b, OWN_OUT i8 *q) // 256 integers, 0..15
{
    for (u32 i = 0; i < 128; i++) {
        u32 at = i / 32 * 64 + i % 32;
        q[at] = (i8)(b->q[i] & 15);
        q[at + 32] = (i8)(b->q[i] >> 4);
    }
}

SHARED_INLINE void q4_k_decode(BLOCK_IN struct q4_k *b, OWN_OUT f32 *out)
{
    i8 q[256];
    f32 d = half_to_float(b->d), dmin = half_to_float(b->dmin);

    q4_k_ints(b, q);
    for (u32 g = 0; g < 8; g++) {
        struct q4_k_pair p = q4_k_scale(b->scales, g);
        f32 scale = d * (f32)p.scale, min = dmin * (f32)p.min;
        for (u32 j = g * 32; j < g * 32 + 32; j++)
            out[j] = scale * (f32)q[j] - min;
    }
}
