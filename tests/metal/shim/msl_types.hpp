// msl_types.hpp - scalars, vectors and matrices of the Metal Shading Language for a C++ compiler.
//
// Vectors are classes: float4(a, b, c, d) and float4(half4) must work in unchanged source. A swizzle is a call: the generator
// writes v.xz as v.get(msl::ix<0,2>()), and v.set(...) where it is assigned to. Names must be xyzw; rgba is not known.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <type_traits>
#include <utility>
#include "msl_run.h"

#define MSL_DEVICE
#define MSL_CONSTANT const
#define MSL_THREAD
#define MSL_THREADGROUP_SPACE
#define MSL_INLINE inline __attribute__((always_inline))
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define HUGE_VALF __builtin_inff()
#define M_PI_F 3.14159265358979323846f
#define M_PI_2_F 1.57079632679489661923f
#define M_1_PI_F 0.31830988618379067154f
#define M_SQRT2_F 1.41421356237309504880f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LN2_F 0.69314718055994530942f
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define HALF_MAX half(65504.0f)
#define CHAR_BIT 8
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define SHRT_MAX 32767
#define USHRT_MAX 65535

typedef _Float16 half;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
constexpr half operator""h(long double x) { return (half)x; }
constexpr half operator""h(unsigned long long x) { return (half)x; }

struct bfloat { // MSL 3.1: arithmetic is done in float
    uint16_t bits;
    bfloat() = default;
    MSL_INLINE bfloat(float f)
    {
        uint32_t u;
        __builtin_memcpy(&u, &f, 4);
        bits = (u & 0x7fffffff) > 0x7f800000 ? (u >> 16) | 64 : (u + 0x7fff + (u >> 16 & 1)) >> 16;
    }
    MSL_INLINE operator float() const
    {
        uint32_t u = (uint32_t)bits << 16;
        float f;
        __builtin_memcpy(&f, &u, 4);
        return f;
    }
};

namespace msl {
template <int... I> struct ix {};
template <class T>
constexpr bool is_scalar = std::is_arithmetic<T>::value || std::is_same<T, half>::value || std::is_same<T, bfloat>::value ||
                           std::is_enum<T>::value;
template <class T> using if_scalar = std::enable_if_t<is_scalar<T>>;
} // namespace msl

namespace metal {
template <class T, int N> struct vec;

template <class T, int N, int... I> struct lens { // some components of a vector, to be assigned to
    vec<T, N> &v;
    typedef vec<T, (int)sizeof...(I)> part;
    MSL_INLINE void put(const part &p) const
    {
        const int at[] = { I... };
        for (int k = 0; k < (int)sizeof...(I); k++)
            v.d[at[k]] = p.d[k];
    }
    MSL_INLINE part now() const { return part(v.d[I]...); }
    MSL_INLINE const lens &operator=(const part &p) const { put(p); return *this; }
    template <class U> MSL_INLINE void operator+=(const U &u) const { put(now() + u); }
    template <class U> MSL_INLINE void operator-=(const U &u) const { put(now() - u); }
    template <class U> MSL_INLINE void operator*=(const U &u) const { put(now() * u); }
    template <class U> MSL_INLINE void operator/=(const U &u) const { put(now() / u); }
};

#define MSL_VECTOR_MEMBERS(N)                                                                                              \
    vec() = default;                                                                                                       \
    template <class S, class = msl::if_scalar<S>> MSL_INLINE constexpr vec(S s) : d{} { for (int i = 0; i < N; i++) d[i] = (T)s; } \
    template <class U, class = std::enable_if_t<!std::is_same<U, T>::value>> MSL_INLINE explicit vec(const vec<U, N> &o)    \
    { for (int i = 0; i < N; i++) d[i] = (T)o.d[i]; }                                                                       \
    MSL_INLINE T &operator[](int i) { return d[i]; }                                                                        \
    MSL_INLINE const T &operator[](int i) const { return d[i]; }                                                            \
    template <int... I> MSL_INLINE vec<T, (int)sizeof...(I)> get(msl::ix<I...>) const { return vec<T, (int)sizeof...(I)>(d[I]...); } \
    template <int... I> MSL_INLINE lens<T, N, I...> set(msl::ix<I...>) { return { *this }; }                                \
    template <class U> MSL_INLINE vec &operator+=(const U &u) { return *this = *this + u; }                                 \
    template <class U> MSL_INLINE vec &operator-=(const U &u) { return *this = *this - u; }                                 \
    template <class U> MSL_INLINE vec &operator*=(const U &u) { return *this = *this * u; }                                 \
    template <class U> MSL_INLINE vec &operator/=(const U &u) { return *this = *this / u; }                                 \
    template <class U> MSL_INLINE vec &operator&=(const U &u) { return *this = *this & u; }                                 \
    template <class U> MSL_INLINE vec &operator|=(const U &u) { return *this = *this | u; }                                 \
    template <class U> MSL_INLINE vec &operator>>=(const U &u) { return *this = *this >> u; }                               \
    template <class U> MSL_INLINE vec &operator<<=(const U &u) { return *this = *this << u; }

template <class T> struct alignas(2 * sizeof(T)) vec<T, 2> {
    union { T d[2]; struct { T x, y; }; };
    MSL_VECTOR_MEMBERS(2)
    MSL_INLINE constexpr vec(T a, T b) : d{ a, b } {}
};
template <class T> struct alignas(4 * sizeof(T)) vec<T, 3> { // as large as four, as in MSL
    union { T d[4]; struct { T x, y, z; }; };
    MSL_VECTOR_MEMBERS(3)
    MSL_INLINE constexpr vec(T a, T b, T c) : d{ a, b, c, T() } {}
    MSL_INLINE vec(vec<T, 2> a, T c) : d{ a.x, a.y, c, T() } {}
    MSL_INLINE vec(T a, vec<T, 2> b) : d{ a, b.x, b.y, T() } {}
};
template <class T> struct alignas(4 * sizeof(T)) vec<T, 4> {
    union { T d[4]; struct { T x, y, z, w; }; };
    MSL_VECTOR_MEMBERS(4)
    MSL_INLINE constexpr vec(T a, T b, T c, T e) : d{ a, b, c, e } {}
    MSL_INLINE vec(vec<T, 2> a, vec<T, 2> b) : d{ a.x, a.y, b.x, b.y } {}
    MSL_INLINE vec(vec<T, 3> a, T b) : d{ a.x, a.y, a.z, b } {}
    MSL_INLINE vec(T a, vec<T, 3> b) : d{ a, b.x, b.y, b.z } {}
    MSL_INLINE vec(vec<T, 2> a, T b, T c) : d{ a.x, a.y, b, c } {}
};

template <class T, int N> struct packed_vec { // no alignment beyond its element's
    T d[N];
    packed_vec() = default;
    MSL_INLINE packed_vec(const vec<T, N> &v) { for (int i = 0; i < N; i++) d[i] = v.d[i]; }
    MSL_INLINE operator vec<T, N>() const { vec<T, N> r; for (int i = 0; i < N; i++) r.d[i] = d[i]; return r; }
    MSL_INLINE T &operator[](int i) { return d[i]; }
    MSL_INLINE const T &operator[](int i) const { return d[i]; }
};

#define MSL_BINARY(op)                                                                                                   \
    template <class T, int N> MSL_INLINE vec<T, N> operator op(const vec<T, N> &a, const vec<T, N> &b)                   \
    { vec<T, N> r; for (int i = 0; i < N; i++) r.d[i] = (T)(a.d[i] op b.d[i]); return r; }                               \
    template <class T, int N, class S, class = msl::if_scalar<S>> MSL_INLINE vec<T, N> operator op(const vec<T, N> &a, S b) \
    { vec<T, N> r; for (int i = 0; i < N; i++) r.d[i] = (T)(a.d[i] op(T) b); return r; }                                 \
    template <class T, int N, class S, class = msl::if_scalar<S>> MSL_INLINE vec<T, N> operator op(S a, const vec<T, N> &b) \
    { vec<T, N> r; for (int i = 0; i < N; i++) r.d[i] = (T)((T)a op b.d[i]); return r; }
MSL_BINARY(+) MSL_BINARY(-) MSL_BINARY(*) MSL_BINARY(/) MSL_BINARY(%) MSL_BINARY(&) MSL_BINARY(|) MSL_BINARY(^) MSL_BINARY(<<)
MSL_BINARY(>>)
#define MSL_COMPARE(op)                                                                                                  \
    template <class T, int N> MSL_INLINE vec<bool, N> operator op(const vec<T, N> &a, const vec<T, N> &b)                \
    { vec<bool, N> r; for (int i = 0; i < N; i++) r.d[i] = a.d[i] op b.d[i]; return r; }                                 \
    template <class T, int N, class S, class = msl::if_scalar<S>> MSL_INLINE vec<bool, N> operator op(const vec<T, N> &a, S b) \
    { vec<bool, N> r; for (int i = 0; i < N; i++) r.d[i] = a.d[i] op(T) b; return r; }
MSL_COMPARE(<) MSL_COMPARE(>) MSL_COMPARE(<=) MSL_COMPARE(>=) MSL_COMPARE(==) MSL_COMPARE(!=) MSL_COMPARE(&&) MSL_COMPARE(||)
template <class T, int N> MSL_INLINE vec<T, N> operator-(const vec<T, N> &a)
{ vec<T, N> r; for (int i = 0; i < N; i++) r.d[i] = (T)-a.d[i]; return r; }
template <class T, int N> MSL_INLINE vec<T, N> operator~(const vec<T, N> &a)
{ vec<T, N> r; for (int i = 0; i < N; i++) r.d[i] = (T)~a.d[i]; return r; }
template <int N> MSL_INLINE vec<bool, N> operator!(const vec<bool, N> &a)
{ vec<bool, N> r; for (int i = 0; i < N; i++) r.d[i] = !a.d[i]; return r; }

template <class T, int C, int R> struct matrix { // C columns of R
    vec<T, R> c[C];
    matrix() = default;
    MSL_INLINE explicit matrix(T s) { for (int i = 0; i < C; i++) for (int j = 0; j < R; j++) c[i].d[j] = i == j ? s : T(0); }
    template <class U, class = std::enable_if_t<!std::is_same<U, T>::value>> MSL_INLINE explicit matrix(const matrix<U, C, R> &o)
    { for (int i = 0; i < C; i++) c[i] = vec<T, R>(o.c[i]); }
    MSL_INLINE vec<T, R> &operator[](int i) { return c[i]; }
    MSL_INLINE const vec<T, R> &operator[](int i) const { return c[i]; }
};
template <class T, int C, int R> MSL_INLINE vec<T, R> operator*(const matrix<T, C, R> &m, const vec<T, C> &v)
{ vec<T, R> r(T(0)); for (int i = 0; i < C; i++) r = r + m.c[i] * v.d[i]; return r; }
template <class T, int C, int R> MSL_INLINE matrix<T, C, R> operator*(const matrix<T, C, R> &m, T s)
{ matrix<T, C, R> r; for (int i = 0; i < C; i++) r.c[i] = m.c[i] * s; return r; }

template <class T, size_t N> struct array {
    T e[N];
    MSL_INLINE T &operator[](size_t i) { return e[i]; }
    MSL_INLINE const T &operator[](size_t i) const { return e[i]; }
    static constexpr size_t size() { return N; }
};
using std::conditional;
using std::conditional_t;
using std::enable_if;
using std::enable_if_t;
using std::is_floating_point;
using std::is_integral;
using std::is_same;
template <class A, class B> constexpr bool is_same_v = std::is_same<A, B>::value;
} // namespace metal

#define MSL_NAMES(t)                                                                                                     \
    typedef metal::vec<t, 2> t##2; typedef metal::vec<t, 3> t##3; typedef metal::vec<t, 4> t##4;                         \
    typedef metal::packed_vec<t, 2> packed_##t##2; typedef metal::packed_vec<t, 3> packed_##t##3;                        \
    typedef metal::packed_vec<t, 4> packed_##t##4;
MSL_NAMES(float) MSL_NAMES(half) MSL_NAMES(bfloat) MSL_NAMES(int) MSL_NAMES(uint) MSL_NAMES(short) MSL_NAMES(ushort)
MSL_NAMES(char) MSL_NAMES(uchar) MSL_NAMES(long) MSL_NAMES(ulong) MSL_NAMES(bool)
typedef metal::matrix<float, 4, 4> float4x4;
typedef metal::matrix<float, 2, 4> float2x4;
typedef metal::matrix<float, 3, 3> float3x3;
typedef metal::matrix<float, 2, 2> float2x2;
typedef metal::matrix<half, 4, 4> half4x4;
typedef metal::matrix<half, 2, 4> half2x4;
