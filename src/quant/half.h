// half.h - IEEE 754 half precision to single, and the two address words that MSL needs, for the block
// headers.
//
// Exact for every bit pattern: subnormals, both zeros, infinities, NaN. Nothing here depends on the rounding
// or flush mode of the processor. The other direction is host code only and lives in quant.c.
#pragma once
#include "base/lang.h"

// A pointer to a block in a tensor, and a pointer to the caller's own array. Only MSL tells them apart.
#if defined(__METAL_VERSION__)
#define BLOCK_IN device const
#define OWN_OUT  thread
#else
#define BLOCK_IN const
#define OWN_OUT
#endif

SHARED_INLINE f32 half_to_float(u16 h)
{
#if defined(__METAL_VERSION__)
    return float(as_type<half>(h));
#elif defined(__CUDA_ARCH__)
    f32 value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(h));
    return value;
#else
    union {
        u32 u;
        f32 f;
    } v;
    u32 sign = (u32)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff;

    if (exponent == 0) // zero or subnormal: mantissa * 2^-24, which a float holds exactly
        v.f = (f32)mantissa * 5.9604644775390625e-08f;
    else
        v.u = (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | mantissa << 13;
    v.u |= sign;
    return v.f;
#endif
}
