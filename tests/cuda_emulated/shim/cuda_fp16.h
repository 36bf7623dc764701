// cuda_fp16.h - CUDA's half numbers, as far as the emulated kernels use them: _Float16 rounds to nearest
// even.
#pragma once
struct __half {
    _Float16 v;
    __half() = default;
    EMULATED __half(float f) : v((_Float16)f)
    {
    }
    EMULATED operator float() const
    {
        return (float)v;
    }
};
struct __half2 {
    __half x, y;
};
typedef __half half;
EMULATED float __half2float(__half h)
{
    return (float)h.v;
}
EMULATED __half __float2half_rn(float f)
{
    return __half(f);
}
EMULATED __half __float2half(float f)
{
    return __half(f);
}
EMULATED float2 __half22float2(__half2 h)
{
    return { (float)h.x.v, (float)h.y.v };
}
EMULATED __half2 __floats2half2_rn(float a, float b)
{
    return { __half(a), __half(b) };
}
EMULATED __half __ushort_as_half(unsigned short v)
{
    return bits_as<__half>(v);
}
EMULATED unsigned short __half_as_ushort(__half v)
{
    return bits_as<unsigned short>(v);
}
EMULATED __half2 __hadd2(__half2 a, __half2 b)
{
    return { __half((float)a.x.v + (float)b.x.v), __half((float)a.y.v + (float)b.y.v) };
}
EMULATED __half2 __hfma2(__half2 a, __half2 b, __half2 c) // products and sums of halves fit into a double
{
    return { __half((float)((double)a.x.v * (double)b.x.v + (double)c.x.v)),
             __half((float)((double)a.y.v * (double)b.y.v + (double)c.y.v)) };
}
