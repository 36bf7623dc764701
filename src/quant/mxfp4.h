// mxfp4.h - 32 elements in 17 bytes: value = 2^(e - 127) * E2M1(q), the microscaling format of the Open
// Compute Project.
//
// E2M1 has the values 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives. They are kept doubled, as integers, and
// the scale halved, so that the integer part multiplies like the other formats. The scale 2^(e - 128) is
// subnormal for e below 2. The halves of a byte lie as in Q4_0, which is GGUF's order; the packing of
// safetensors files pairs neighbours instead. Code 8 (minus zero) is plus zero.
#pragma once
#include "quant/half.h"

#define MXFP4_LEVELS                                            \
    {                                                           \
        0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 \
    }

struct mxfp4 {
    u8 e;
    u8 q[16];
};
STATIC_ASSERT(sizeof(struct mxfp4) == 17);

SHARED_INLINE i8 mxfp4_level(u32 q) // q below 16; twice the value
{
    int level = (int)((u64)0x0c08060403020100 >> q % 8 * 8 & 255);
    return (i8)(q < 8 ? level : -level);
}

SHARED_INLINE f32 mxfp4_scale(u8 e) // half of 2^(e - 127)
{
    u32 bits = e < 2 ? 0x00200000u << e : (u32)(e - 1) << 23;
#if defined(__METAL_VERSION__)
    return as_type<float>(bits);
#else
    union {
        u32 u;
        f32 f;
    } v;
    v.u = bits;
    return v.f;
#endif
}

SHARED_INLINE void mxfp4_ints(BLOCK_IN struct mxfp4 *b, OWN_OUT i8 *q) // 32 integers, -12..12
{
    for (u32 j = 0; j < 16; j++) {
        q[j] = mxfp4_level(b->q[j] & 15u);
        q[j + 16] = mxfp4_level((u32)b->q[j] >> 4);
    }
}

SHARED_INLINE void mxfp4_decode(BLOCK_IN struct mxfp4 *b, OWN_OUT f32 *out)
{
    i8 q[32];
    f32 d = mxfp4_scale(b->e);

    mxfp4_ints(b, q);
    for (u32 j = 0; j < 32; j++)
        out[j] = d * (f32)q[j];
}
