// msl_space.hpp - the names of metal_stdlib with real address spaces, for type checking only: a device pointer is no thread pointer here.
//
// Vectors are clang's own, so that the functional cast float4(x) is a macro; nothing in this file computes anything.
#pragma once
#include <stddef.h>
#include <stdint.h>

#define MSL_DEVICE            __attribute__((address_space(1)))
#define MSL_CONSTANT          const __attribute__((address_space(2)))
#define MSL_THREADGROUP_SPACE __attribute__((address_space(3)))
#define MSL_THREAD
#define MSL_VARIABLE(slot, name, type) static __attribute__((address_space(3))) type name
#define is_function_constant_defined(name) msl_defined_##name
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define M_PI_F 3.14159265f
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define CHAR_BIT 8

typedef _Float16 half;
struct bfloat {
    uint16_t bits;
    bfloat() = default;
    bfloat(float) {}
    operator float() const { return 0; }
};
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
constexpr half operator""h(long double x) { return (half)x; }
constexpr half operator""h(unsigned long long x) { return (half)x; }

#define MSL_VECTORS(t)                                                                                                   \
    typedef t t##2 __attribute__((ext_vector_type(2)));                                                                  \
    typedef t t##3 __attribute__((ext_vector_type(3)));                                                                  \
    typedef t t##4 __attribute__((ext_vector_type(4)));                                                                  \
    inline t##2 make_##t##2(t a, t b) { return (t##2){ a, b }; }                                                         \
    inline t##3 make_##t##3(t a, t b, t c) { return (t##3){ a, b, c }; }                                                 \
    inline t##4 make_##t##4(t a, t b, t c, t d) { return (t##4){ a, b, c, d }; }                                         \
    inline t##4 make_##t##4(t##2 a, t##2 b) { return (t##4){ a.x, a.y, b.x, b.y }; }                                     \
    inline t##4 make_##t##4(t##3 a, t b) { return (t##4){ a.x, a.y, a.z, b }; }                                          \
    inline t##3 make_##t##3(t##2 a, t b) { return (t##3){ a.x, a.y, b }; }                                               \
    template <class V> inline auto make_##t##2(V v) -> decltype(v.x, t##2()) { return __builtin_convertvector(v, t##2); } \
    template <class V> inline auto make_##t##3(V v) -> decltype(v.x, t##3()) { return __builtin_convertvector(v, t##3); } \
    template <class V> inline auto make_##t##4(V v) -> decltype(v.x, t##4()) { return __builtin_convertvector(v, t##4); } \
    inline t##2 make_##t##2(t a) { return (t##2)(a); }                                                                   \
    inline t##3 make_##t##3(t a) { return (t##3)(a); }                                                                   \
    inline t##4 make_##t##4(t a) { return (t##4)(a); }
MSL_VECTORS(float) MSL_VECTORS(half) MSL_VECTORS(int) MSL_VECTORS(uint) MSL_VECTORS(short) MSL_VECTORS(ushort) MSL_VECTORS(char)
MSL_VECTORS(uchar) MSL_VECTORS(long) MSL_VECTORS(ulong)
typedef int2 bool2; // what comparing two vectors of clang gives
typedef int3 bool3;
typedef int4 bool4;
#define float2(...) make_float2(__VA_ARGS__)
#define float3(...) make_float3(__VA_ARGS__)
#define float4(...) make_float4(__VA_ARGS__)
#define half2(...) make_half2(__VA_ARGS__)
#define half3(...) make_half3(__VA_ARGS__)
#define half4(...) make_half4(__VA_ARGS__)
#define int2(...) make_int2(__VA_ARGS__)
#define int3(...) make_int3(__VA_ARGS__)
#define int4(...) make_int4(__VA_ARGS__)
#define uint2(...) make_uint2(__VA_ARGS__)
#define uint3(...) make_uint3(__VA_ARGS__)
#define uint4(...) make_uint4(__VA_ARGS__)
#define short2(...) make_short2(__VA_ARGS__)
#define short4(...) make_short4(__VA_ARGS__)
#define ushort2(...) make_ushort2(__VA_ARGS__)
#define ushort3(...) make_ushort3(__VA_ARGS__)
#define ushort4(...) make_ushort4(__VA_ARGS__)
#define char2(...) make_char2(__VA_ARGS__)
#define char4(...) make_char4(__VA_ARGS__)
#define uchar2(...) make_uchar2(__VA_ARGS__)
#define uchar4(...) make_uchar4(__VA_ARGS__)
#define ulong2(...) make_ulong2(__VA_ARGS__)

namespace metal {
#define MSL_ONE(n) template <class T> inline T n(T x) { return x; }
#define MSL_FUNCTIONS                                                                                                    \
    MSL_ONE(exp) MSL_ONE(exp2) MSL_ONE(exp10) MSL_ONE(log) MSL_ONE(log2) MSL_ONE(log10) MSL_ONE(sqrt) MSL_ONE(rsqrt)     \
    MSL_ONE(sin) MSL_ONE(cos) MSL_ONE(tan) MSL_ONE(tanh) MSL_ONE(sinh) MSL_ONE(cosh) MSL_ONE(atan) MSL_ONE(floor)        \
    MSL_ONE(ceil) MSL_ONE(trunc) MSL_ONE(rint) MSL_ONE(round) MSL_ONE(fabs) MSL_ONE(fract) MSL_ONE(sign) MSL_ONE(saturate) \
    inline float pow(float a, float) { return a; }                                                                       \
    inline float powr(float a, float) { return a; }                                                                      \
    inline float fmod(float a, float) { return a; }                                                                      \
    inline float divide(float a, float) { return a; }                                                                    \
    inline float sincos(float a, float &) { return a; }
MSL_FUNCTIONS
namespace precise { MSL_FUNCTIONS }
namespace fast { MSL_FUNCTIONS }
MSL_ONE(abs) MSL_ONE(popcount) MSL_ONE(ctz) MSL_ONE(clz) MSL_ONE(reverse_bits)
#define MSL_TWO(n) template <class A, class B> inline auto n(A a, B b) -> decltype(a + b) { return a; }
MSL_TWO(max) MSL_TWO(min) MSL_TWO(fmax) MSL_TWO(fmin) MSL_TWO(mulhi)
inline float dot(float2 a, float2) { return a.x; }
inline float dot(float3 a, float3) { return a.x; }
inline float dot(float4 a, float4) { return a.x; }
inline half dot(half2 a, half2) { return a.x; }
inline half dot(half4 a, half4) { return a.x; }
inline float length(float4 a) { return a.x; }
template <class T> inline T fma(T a, T, T) { return a; }
template <class T, class A, class B> inline T clamp(T x, A, B) { return x; }
template <class T, class C> inline T select(T a, T, C) { return a; }
template <class T, class S> inline T mix(T a, T, S) { return a; }
inline float ldexp(float a, int) { return a; }
inline float copysign(float a, float) { return a; }
inline bool isnan(float) { return false; }
inline bool isinf(float) { return false; }
inline bool isfinite(float) { return false; }
template <class T> inline bool all(T) { return false; }
template <class T> inline bool any(T) { return false; }
template <class T> inline T extract_bits(T x, uint, uint) { return x; }
template <class T> inline T rotate(T x, T) { return x; }
template <class D, class S> inline D as_type(S) { static_assert(sizeof(D) == sizeof(S), "as_type: sizes differ"); return D(); }
template <class T> struct numeric_limits {
    static constexpr T infinity() { return T(); }
    static constexpr T max() { return T(); }
    static constexpr T min() { return T(); }
    static constexpr T lowest() { return T(); }
};
template <class A, class B> struct is_same { static constexpr bool value = false; };
template <class A> struct is_same<A, A> { static constexpr bool value = true; };
template <class A, class B> constexpr bool is_same_v = is_same<A, B>::value;

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
inline mem_flags operator|(mem_flags a, mem_flags) { return a; }
inline void threadgroup_barrier(mem_flags) {}
inline void simdgroup_barrier(mem_flags) {}
MSL_ONE(simd_sum) MSL_ONE(simd_product) MSL_ONE(simd_max) MSL_ONE(simd_min) MSL_ONE(simd_and) MSL_ONE(simd_or) MSL_ONE(simd_xor)
MSL_ONE(simd_broadcast_first) MSL_ONE(simd_prefix_inclusive_sum) MSL_ONE(simd_prefix_exclusive_sum) MSL_ONE(simd_all) MSL_ONE(simd_any)
#define MSL_MOVE(n) template <class T> inline T n(T x, ushort) { return x; }
MSL_MOVE(simd_shuffle) MSL_MOVE(simd_broadcast) MSL_MOVE(simd_shuffle_xor) MSL_MOVE(simd_shuffle_down) MSL_MOVE(simd_shuffle_up)
MSL_MOVE(simd_shuffle_rotate_down) MSL_MOVE(simd_shuffle_rotate_up)
struct simd_vote {
    typedef uint64_t vote_t;
    uint64_t bits;
    explicit operator vote_t() const { return bits; }
};
inline simd_vote simd_ballot(bool) { return {}; }
inline bool simd_is_first() { return false; }

template <class T, int R, int C> struct simdgroup_matrix {
    T e[2];
    simdgroup_matrix() = default;
    explicit simdgroup_matrix(T) {}
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
template <class T, int R, int C = R> simdgroup_matrix<T, R, C> make_filled_simdgroup_matrix(T) { return {}; }
#define MSL_MATRIX(space)                                                                                                \
    template <class T> void simdgroup_load(simdgroup_matrix<T, 8, 8> &, const space T *, ulong = 8, metal_ulong2 = 0, bool = false) {} \
    template <class T> void simdgroup_store(const simdgroup_matrix<T, 8, 8> &, space T *, ulong = 8, metal_ulong2 = 0, bool = false) {}
typedef ulong metal_ulong2 __attribute__((ext_vector_type(2)));
MSL_MATRIX(MSL_DEVICE) MSL_MATRIX(MSL_THREADGROUP_SPACE)
template <class D, class A, class B, class C>
void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8> &, const simdgroup_matrix<A, 8, 8> &, const simdgroup_matrix<B, 8, 8> &,
                                   const simdgroup_matrix<C, 8, 8> &) {}
template <class D, class A, class B>
void simdgroup_multiply(simdgroup_matrix<D, 8, 8> &, const simdgroup_matrix<A, 8, 8> &, const simdgroup_matrix<B, 8, 8> &) {}

enum memory_order { memory_order_relaxed };
template <class T> struct atomic { T value; };
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<float> atomic_float;
typedef atomic<bool> atomic_bool;
#define MSL_ATOMIC(n, space)                                                                                             \
    template <class T, class U> T n(volatile space atomic<T> *, U, memory_order) { return T(); }
#define MSL_ATOMICS(space)                                                                                               \
    MSL_ATOMIC(atomic_fetch_add_explicit, space) MSL_ATOMIC(atomic_fetch_sub_explicit, space)                            \
    MSL_ATOMIC(atomic_fetch_max_explicit, space) MSL_ATOMIC(atomic_fetch_min_explicit, space)                            \
    MSL_ATOMIC(atomic_fetch_or_explicit, space) MSL_ATOMIC(atomic_fetch_and_explicit, space)                             \
    MSL_ATOMIC(atomic_exchange_explicit, space) MSL_ATOMIC(atomic_store_explicit, space)                                 \
    template <class T> T atomic_load_explicit(const volatile space atomic<T> *, memory_order) { return T(); }            \
    template <class T> bool atomic_compare_exchange_weak_explicit(volatile space atomic<T> *, T *, T, memory_order, memory_order) { return true; }
MSL_ATOMICS(MSL_DEVICE) MSL_ATOMICS(MSL_THREADGROUP_SPACE)
} // namespace metal
using metal::as_type;
