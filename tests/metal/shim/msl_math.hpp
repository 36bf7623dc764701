// msl_math.hpp - metal_math, metal_integer, metal_common and metal_geometric, as far as kernels of a language model use them.
//
// Half functions are computed in float and rounded once. fast:: and precise:: are the same here: no claim is made about the
// error of the hardware's fast functions; tests must hold with -ffast-math too.
#pragma once
#include "msl_types.hpp"

namespace metal {
#define MSL_UNARY(name, expression)                                                                                      \
    MSL_INLINE float name(float x) { return expression; }                                                                \
    MSL_INLINE half name(half h) { float x = (float)h; return (half)(expression); }                                      \
    MSL_INLINE bfloat name(bfloat h) { float x = (float)h; return (bfloat)(float)(expression); }                         \
    template <class T, int N> MSL_INLINE vec<T, N> name(const vec<T, N> &v)                                              \
    { vec<T, N> r; for (int i = 0; i < N; i++) r.d[i] = name(v.d[i]); return r; }
#define MSL_FUNCTIONS                                                                                                    \
    MSL_UNARY(exp, __builtin_expf(x)) MSL_UNARY(exp2, __builtin_exp2f(x)) MSL_UNARY(exp10, __builtin_powf(10.0f, x))     \
    MSL_UNARY(log, __builtin_logf(x)) MSL_UNARY(log2, __builtin_log2f(x)) MSL_UNARY(log10, __builtin_log10f(x))          \
    MSL_UNARY(sqrt, __builtin_sqrtf(x)) MSL_UNARY(rsqrt, 1.0f / __builtin_sqrtf(x))                                      \
    MSL_UNARY(sin, __builtin_sinf(x)) MSL_UNARY(cos, __builtin_cosf(x)) MSL_UNARY(tan, __builtin_tanf(x))                \
    MSL_UNARY(asin, __builtin_asinf(x)) MSL_UNARY(acos, __builtin_acosf(x)) MSL_UNARY(atan, __builtin_atanf(x))          \
    MSL_UNARY(sinh, __builtin_sinhf(x)) MSL_UNARY(cosh, __builtin_coshf(x)) MSL_UNARY(tanh, __builtin_tanhf(x))          \
    MSL_UNARY(floor, __builtin_floorf(x)) MSL_UNARY(ceil, __builtin_ceilf(x)) MSL_UNARY(trunc, __builtin_truncf(x))      \
    MSL_UNARY(rint, __builtin_rintf(x)) MSL_UNARY(round, __builtin_roundf(x)) MSL_UNARY(fabs, __builtin_fabsf(x))        \
    MSL_UNARY(fract, x - __builtin_floorf(x)) MSL_UNARY(sign, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f)                 \
    MSL_UNARY(saturate, x < 0.0f ? 0.0f : x > 1.0f ? 1.0f : x)                                                           \
    MSL_INLINE float pow(float a, float b) { return __builtin_powf(a, b); }                                              \
    MSL_INLINE float powr(float a, float b) { return __builtin_powf(a, b); }                                             \
    MSL_INLINE float fmod(float a, float b) { return __builtin_fmodf(a, b); }                                            \
    MSL_INLINE float atan2(float a, float b) { return __builtin_atan2f(a, b); }                                          \
    MSL_INLINE float divide(float a, float b) { return a / b; }                                                          \
    MSL_INLINE float sincos(float x, float &c) { c = __builtin_cosf(x); return __builtin_sinf(x); }
MSL_FUNCTIONS
namespace precise { MSL_FUNCTIONS }
namespace fast { MSL_FUNCTIONS }

#define MSL_PICK(name, op)                                                                                               \
    template <class T, class = msl::if_scalar<T>> MSL_INLINE T name(T a, T b) { return a op b ? a : b; }                 \
    template <class A, class B, class = msl::if_scalar<A>, class = msl::if_scalar<B>, class = std::enable_if_t<!std::is_same<A, B>::value>> \
    MSL_INLINE auto name(A a, B b) { typedef decltype(a + b) R; return (R)a op(R) b ? (R)a : (R)b; }                     \
    template <class T, int N> MSL_INLINE vec<T, N> name(const vec<T, N> &a, const vec<T, N> &b)                          \
    { vec<T, N> r; for (int i = 0; i < N; i++) r.d[i] = a.d[i] op b.d[i] ? a.d[i] : b.d[i]; return r; }                  \
    template <class T, int N, class S, class = msl::if_scalar<S>> MSL_INLINE vec<T, N> name(const vec<T, N> &a, S b)     \
    { return name(a, vec<T, N>(b)); }                                                                                    \
    template <class T, int N, class S, class = msl::if_scalar<S>> MSL_INLINE vec<T, N> name(S a, const vec<T, N> &b)     \
    { return name(vec<T, N>(a), b); }
MSL_PICK(max, >) MSL_PICK(min, <)
MSL_INLINE float fmax(float a, float b) { return __builtin_fmaxf(a, b); }
MSL_INLINE float fmin(float a, float b) { return __builtin_fminf(a, b); }
MSL_INLINE half fmax(half a, half b) { return (half)__builtin_fmaxf((float)a, (float)b); }
MSL_INLINE half fmin(half a, half b) { return (half)__builtin_fminf((float)a, (float)b); }
template <class T, int N> MSL_INLINE vec<T, N> fmax(const vec<T, N> &a, const vec<T, N> &b)
{ vec<T, N> r; for (int i = 0; i < N; i++) r.d[i] = fmax(a.d[i], b.d[i]); return r; }
template <class T, int N> MSL_INLINE vec<T, N> fmin(const vec<T, N> &a, const vec<T, N> &b)
{ vec<T, N> r; for (int i = 0; i < N; i++) r.d[i] = fmin(a.d[i], b.d[i]); return r; }
template <class T, class A, class B> MSL_INLINE T clamp(T x, A low, B high) { return min(max(x, (T)low), (T)high); }

template <class T, int N> MSL_INLINE T dot(const vec<T, N> &a, const vec<T, N> &b)
{ T r = T(0); for (int i = 0; i < N; i++) r = (T)(r + a.d[i] * b.d[i]); return r; }
template <class T, int N> MSL_INLINE T length_squared(const vec<T, N> &a) { return dot(a, a); }
template <class T, int N> MSL_INLINE T length(const vec<T, N> &a) { return sqrt(dot(a, a)); }
MSL_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
MSL_INLINE half fma(half a, half b, half c) { return (half)__builtin_fma((double)a, (double)b, (double)c); }
template <class T, int N> MSL_INLINE vec<T, N> fma(const vec<T, N> &a, const vec<T, N> &b, const vec<T, N> &c)
{ vec<T, N> r; for (int i = 0; i < N; i++) r.d[i] = fma(a.d[i], b.d[i], c.d[i]); return r; }
MSL_INLINE float ldexp(float a, int b) { return __builtin_ldexpf(a, b); }
MSL_INLINE float copysign(float a, float b) { return __builtin_copysignf(a, b); }
// Under fast-math the hardware's compiler may take these for false, as clang does: kernels look at the bits.
MSL_INLINE bool isnan(float x) { return __builtin_isnan(x); }
MSL_INLINE bool isinf(float x) { return __builtin_isinf(x); }
MSL_INLINE bool isfinite(float x) { return __builtin_isfinite(x); }

template <class T, class = std::enable_if_t<std::is_integral<T>::value>> MSL_INLINE T abs(T x) { return x < 0 ? (T)-x : x; }
MSL_INLINE float abs(float x) { return __builtin_fabsf(x); }
MSL_INLINE half abs(half x) { return (half)__builtin_fabsf((float)x); }
template <class T, int N> MSL_INLINE vec<T, N> abs(const vec<T, N> &v)
{ vec<T, N> r; for (int i = 0; i < N; i++) r.d[i] = abs(v.d[i]); return r; }
template <class T> MSL_INLINE T select(T a, T b, bool c) { return c ? b : a; }
template <class T, int N> MSL_INLINE vec<T, N> select(const vec<T, N> &a, const vec<T, N> &b, const vec<bool, N> &c)
{ vec<T, N> r; for (int i = 0; i < N; i++) r.d[i] = c.d[i] ? b.d[i] : a.d[i]; return r; }
template <class T, class S> MSL_INLINE T mix(T a, T b, S t) { return a + (b - a) * t; }
template <int N> MSL_INLINE bool all(const vec<bool, N> &v) { for (int i = 0; i < N; i++) if (!v.d[i]) return false; return true; }
template <int N> MSL_INLINE bool any(const vec<bool, N> &v) { for (int i = 0; i < N; i++) if (v.d[i]) return true; return false; }
MSL_INLINE bool all(bool b) { return b; }
MSL_INLINE bool any(bool b) { return b; }

MSL_INLINE uint popcount(uint x) { return (uint)__builtin_popcount(x); }
MSL_INLINE ulong popcount(ulong x) { return (ulong)__builtin_popcountl(x); }
MSL_INLINE uint ctz(uint x) { return x ? (uint)__builtin_ctz(x) : 32; }
MSL_INLINE uint clz(uint x) { return x ? (uint)__builtin_clz(x) : 32; }
MSL_INLINE uint reverse_bits(uint x) { return __builtin_bitreverse32(x); }
template <class T> MSL_INLINE T extract_bits(T x, uint at, uint n)
{ return n == 0 ? T(0) : (T)((T)(x << (8 * sizeof(T) - at - n)) >> (8 * sizeof(T) - n)); }
MSL_INLINE uint mulhi(uint a, uint b) { return (uint)(((uint64_t)a * b) >> 32); }
MSL_INLINE int mulhi(int a, int b) { return (int)(((int64_t)a * b) >> 32); }
MSL_INLINE uint mad24(uint a, uint b, uint c) { return a * b + c; }
template <class T> MSL_INLINE T rotate(T x, T n)
{ const int bits = 8 * sizeof(T); n &= bits - 1; return n ? (T)((x << n) | (x >> (bits - n))) : x; }
template <class D, class S> MSL_INLINE D as_type(const S &s)
{ static_assert(sizeof(D) == sizeof(S), "as_type: sizes differ"); D d; __builtin_memcpy(&d, &s, sizeof d); return d; }
template <class T> struct numeric_limits;
template <> struct numeric_limits<float> {
    static constexpr float infinity() { return __builtin_inff(); }
    static constexpr float max() { return FLT_MAX; }
    static constexpr float lowest() { return -FLT_MAX; }
};
template <> struct numeric_limits<half> {
    static constexpr half infinity() { return (half)__builtin_inff(); }
    static constexpr half max() { return (half)65504.0f; }
};
template <> struct numeric_limits<uint> { static constexpr uint max() { return UINT_MAX; } };
template <> struct numeric_limits<int> {
    static constexpr int max() { return INT_MAX; }
    static constexpr int min() { return INT_MIN; }
};
} // namespace metal
using metal::as_type;
