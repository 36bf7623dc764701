// cuda_bf16.h - CUDA's bfloat16 numbers, as far as the emulated kernels use them: rounded to nearest even, a
// NaN stays one.
#pragma once
struct __nv_bfloat16 {
    uint16_t bits;
    __nv_bfloat16() = default;
    EMULATED __nv_bfloat16(float f)
    {
        uint32_t b = __float_as_uint(f);
        bits = f != f ? 0x7fff : (uint16_t)((b + 0x7fff + (b >> 16 & 1)) >> 16);
    }
    EMULATED operator float() const
    {
        return __uint_as_float((uint32_t)bits << 16);
    }
};
struct __nv_bfloat162 {
    __nv_bfloat16 x, y;
};
EMULATED float __bfloat162float(__nv_bfloat16 v)
{
    return (float)v;
}
EMULATED __nv_bfloat16 __float2bfloat16_rn(float f)
{
    return __nv_bfloat16(f);
}
EMULATED __nv_bfloat162 __floats2bfloat162_rn(float a, float b)
{
    return { __nv_bfloat16(a), __nv_bfloat16(b) };
}
EMULATED unsigned short __bfloat16_as_ushort(__nv_bfloat16 v)
{
    return v.bits;
}
EMULATED __nv_bfloat162 __hsub2(__nv_bfloat162 a, __nv_bfloat162 b)
{
    return { __nv_bfloat16((float)a.x - (float)b.x), __nv_bfloat16((float)a.y - (float)b.y) };
}
