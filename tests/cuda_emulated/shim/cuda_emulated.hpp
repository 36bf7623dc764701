// cuda_emulated.hpp - CUDA C++ for a C++ compiler: included before a .cu file, it gives the language's words and the functions
// that the kernels of this tree use. See run/cuda_run.h for how they run. No PTX.
//
// __shared__ is thread_local: all fibers of a block run on one thread of the host, blocks one after another. A block of memory
// whose size the launch gives, `extern __shared__ T name[]`, has its room in dynamic.cpp, which must know its name.
#pragma once
#include <math.h>
#include <string.h>
#include <type_traits>
#include "cuda_run.h"

#define __CUDACC__ 1
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ thread_local
#define __restrict__ __restrict

#define threadIdx cuda_run_thread_position()
#define blockIdx  cuda_run_block_position()
#define blockDim  cuda_run_block_threads()
#define gridDim   cuda_run_grid_blocks()

#define EMULATED inline __attribute__((always_inline))
// what the optimiser must know: do not move, merge or copy a meeting
#define MEETING __attribute__((convergent, noduplicate, nomerge))
namespace cuda_emulated {
MEETING uint32_t meet_warp(uint32_t what, uint32_t mask, uint64_t v) __asm__("cuda_run_meet_warp");
MEETING cuda_run_votes meet_block(uint32_t vote) __asm__("cuda_run_meet_block");
enum what { SYNC, FOLD, SHUFFLE, SHUFFLE_XOR, SHUFFLE_DOWN, SHUFFLE_UP, MATCH };

template <class T> EMULATED uint32_t exchange(uint32_t what, uint32_t mask, T v)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "warp functions take 4 or 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &v, sizeof v);
    return meet_warp(what | sizeof(T) << 8, mask, bits);
}
template <class T> EMULATED T take(uint32_t lane)
{
    uint64_t bits = cuda_run_take(lane);
    T v;
    memcpy(&v, &bits, sizeof v);
    return v;
}
template <class T, class F> EMULATED T fold(uint32_t mask, T v, F f)
{
    uint32_t rest = exchange(FOLD, mask, v);
    T r = take<T>((uint32_t)__builtin_ctz(rest));
    for (rest &= rest - 1; rest; rest &= rest - 1)
        r = f(r, take<T>((uint32_t)__builtin_ctz(rest)));
    return r;
}
} // namespace cuda_emulated

EMULATED void __syncthreads() { cuda_emulated::meet_block(0); }
EMULATED int __syncthreads_or(int v) { return (int)cuda_emulated::meet_block(v != 0).any; }
EMULATED int __syncthreads_and(int v) { return (int)cuda_emulated::meet_block(v != 0).all; }
EMULATED int __syncthreads_count(int v) { return (int)cuda_emulated::meet_block(v != 0).count; }
EMULATED void __syncwarp(uint32_t mask = ~0u) { cuda_emulated::meet_warp(cuda_emulated::SYNC, mask, 0); }
EMULATED void __threadfence() {}
EMULATED void __threadfence_block() {}

#define LANE (cuda_run_thread_position().x & 31) // blocks here have one dimension
template <class T> EMULATED T __shfl_sync(uint32_t mask, T v, int from, int width = 32)
{
    cuda_emulated::exchange(cuda_emulated::SHUFFLE, mask, v);
    return cuda_emulated::take<T>((LANE & ~(uint32_t)(width - 1)) | ((uint32_t)from & (uint32_t)(width - 1)));
}
template <class T> EMULATED T __shfl_xor_sync(uint32_t mask, T v, int with, int width = 32)
{
    cuda_emulated::exchange(cuda_emulated::SHUFFLE_XOR, mask, v);
    uint32_t from = LANE ^ (uint32_t)with;
    return from / (uint32_t)width > LANE / (uint32_t)width ? v : cuda_emulated::take<T>(from);
}
template <class T> EMULATED T __shfl_down_sync(uint32_t mask, T v, uint32_t n, int width = 32)
{
    cuda_emulated::exchange(cuda_emulated::SHUFFLE_DOWN, mask, v);
    uint32_t from = LANE + n;
    return from / (uint32_t)width != LANE / (uint32_t)width ? v : cuda_emulated::take<T>(from);
}
template <class T> EMULATED T __shfl_up_sync(uint32_t mask, T v, uint32_t n, int width = 32)
{
    cuda_emulated::exchange(cuda_emulated::SHUFFLE_UP, mask, v);
    return LANE % (uint32_t)width < n ? v : cuda_emulated::take<T>(LANE - n);
}
EMULATED uint32_t __ballot_sync(uint32_t mask, int v)
{ return cuda_emulated::fold(mask, v ? 1u << LANE : 0u, [](uint32_t a, uint32_t b) { return a | b; }); }
EMULATED int __any_sync(uint32_t mask, int v) { return __ballot_sync(mask, v) != 0; }
EMULATED int __all_sync(uint32_t mask, int v) { return __ballot_sync(mask, !v) == 0; }
template <class T> EMULATED T __reduce_add_sync(uint32_t mask, T v)
{ return cuda_emulated::fold(mask, v, [](T a, T b) { return (T)(a + b); }); }
template <class T> EMULATED T __reduce_max_sync(uint32_t mask, T v)
{ return cuda_emulated::fold(mask, v, [](T a, T b) { return a > b ? a : b; }); }
template <class T> EMULATED T __reduce_min_sync(uint32_t mask, T v)
{ return cuda_emulated::fold(mask, v, [](T a, T b) { return a < b ? a : b; }); }
template <class T> EMULATED T __reduce_or_sync(uint32_t mask, T v)
{ return cuda_emulated::fold(mask, v, [](T a, T b) { return a | b; }); }
template <class T> EMULATED uint32_t __match_any_sync(uint32_t mask, T v)
{
    uint32_t same = 0;
    for (uint32_t rest = cuda_emulated::exchange(cuda_emulated::MATCH, mask, v); rest; rest &= rest - 1)
        same |= cuda_emulated::take<T>((uint32_t)__builtin_ctz(rest)) == v ? rest & -rest : 0;
    return same;
}
EMULATED uint32_t __activemask() = delete; // which lanes are together nothing promises

// Lanes switch only where they meet: an atomic is a read and a write.
#define ATOMIC(name, result)                                                            \
    template <class T, class U> __attribute__((no_sanitize("thread"))) T name(T *a, U u) \
    {                                                                                   \
        cuda_check_atomic(a, sizeof(T));                                                \
        T v = (T)u, o = *a;                                                             \
        *a = (T)(result);                                                               \
        return o;                                                                       \
    }
ATOMIC(atomicAdd, o + v) ATOMIC(atomicSub, o - v) ATOMIC(atomicExch, v) ATOMIC(atomicOr, o | v) ATOMIC(atomicAnd, o & v)
ATOMIC(atomicMax, o > v ? o : v) ATOMIC(atomicMin, o < v ? o : v)

#define VECTOR2(T, name) struct alignas(2 * sizeof(T)) name { T x, y; }; EMULATED name make_##name(T x, T y) { return { x, y }; }
#define VECTOR4(T, name) \
    struct alignas(sizeof(T) < 4 ? 4 * sizeof(T) : 16) name { T x, y, z, w; }; EMULATED name make_##name(T x, T y, T z, T w) { return { x, y, z, w }; }
VECTOR2(float, float2) VECTOR2(int, int2) VECTOR2(uint32_t, uint2) VECTOR2(uint16_t, ushort2)
VECTOR4(float, float4) VECTOR4(int, int4) VECTOR4(uint32_t, uint4) VECTOR4(signed char, char4) VECTOR4(unsigned char, uchar4)
typedef struct { uint32_t x, y, z; } uint3;

template <class T> EMULATED T __ldg(const T *a) { return *a; }
template <class T> EMULATED T __ldcg(const T *a) { return *a; }
template <class T> EMULATED T __ldcs(const T *a) { return *a; }
template <class T> EMULATED void __stcg(T *a, T v) { *a = v; }
template <class T> EMULATED void __stcs(T *a, T v) { *a = v; }

template <class To, class From> EMULATED To bits_as(From v)
{ static_assert(sizeof(To) == sizeof(From), ""); To r; memcpy(&r, &v, sizeof r); return r; }
EMULATED float __int_as_float(int v) { return bits_as<float>(v); }
EMULATED float __uint_as_float(uint32_t v) { return bits_as<float>(v); }
EMULATED int __float_as_int(float v) { return bits_as<int>(v); }
EMULATED uint32_t __float_as_uint(float v) { return bits_as<uint32_t>(v); }
EMULATED int __float2int_rn(float v) { return (int)rintf(v); }
EMULATED float __fmul_rn(float a, float b) { volatile float r = a * b; return r; }
EMULATED float __fadd_rn(float a, float b) { volatile float r = a + b; return r; }
EMULATED float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
EMULATED float __expf(float v) { return expf(v); }
EMULATED float __logf(float v) { return logf(v); }
EMULATED float __fdividef(float a, float b) { return a / b; }
EMULATED float rsqrtf(float v) { return 1 / sqrtf(v); }
EMULATED int __popc(uint32_t v) { return __builtin_popcount(v); }
EMULATED int __popcll(uint64_t v) { return __builtin_popcountll(v); }
EMULATED int __clz(int v) { return v ? __builtin_clz((uint32_t)v) : 32; }
EMULATED int __ffs(int v) { return __builtin_ffs(v); }
EMULATED int __ffsll(long long v) { return __builtin_ffsll(v); }
EMULATED uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t s)
{
    uint64_t both = (uint64_t)b << 32 | a;
    uint32_t r = 0;
    for (uint32_t i = 0; i < 4; i++)
        r |= (uint32_t)(both >> (s >> 4 * i & 7) * 8 & 255) << 8 * i;
    return r;
}
EMULATED int __dp4a(int a, int b, int c)
{
    for (int i = 0; i < 4; i++)
        c += (int)(int8_t)(a >> 8 * i) * (int)(int8_t)(b >> 8 * i);
    return c;
}
EMULATED uint32_t __dp4a(uint32_t a, uint32_t b, uint32_t c)
{
    for (int i = 0; i < 4; i++)
        c += (a >> 8 * i & 255) * (b >> 8 * i & 255);
    return c;
}
EMULATED uint32_t __funnelshift_l(uint32_t low, uint32_t high, uint32_t n)
{ return n & 31 ? high << (n & 31) | low >> (32 - (n & 31)) : high; }
// The instructions of ops/trellis/trellis_decode.cuh. d += a b: lane 4 g + t has of A rows g and g + 8, of B column g, of d
// columns 2 t and 2 t + 1. Word i of a lane's row or column has `n` numbers from k = n (t + 4 i) on.
template <class D, uint32_t N, class A, class B> EMULATED void mma_words(D (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, A left, B right)
{
    D rows[2][8 * N], columns[2][8 * N];
    for (uint32_t word = 0; word < 2; word++) {
        cuda_emulated::exchange(cuda_emulated::SHUFFLE, ~0u, (uint64_t)a[2 * word + 1] << 32 | a[2 * word]);
        for (uint32_t k = 0; k < 4 * N; k++) {
            uint64_t both = cuda_emulated::take<uint64_t>(LANE / 4 * 4 + k / N);
            rows[0][word * 4 * N + k] = left((uint32_t)both, k % N);
            rows[1][word * 4 * N + k] = left((uint32_t)(both >> 32), k % N);
        }
    }
    cuda_emulated::exchange(cuda_emulated::SHUFFLE, ~0u, (uint64_t)b1 << 32 | b0);
    for (uint32_t j = 0; j < 2; j++)
        for (uint32_t k = 0; k < 4 * N; k++) {
            uint64_t both = cuda_emulated::take<uint64_t>((LANE % 4 * 2 + j) * 4 + k / N);
            columns[j][k] = right((uint32_t)both, k % N);
            columns[j][4 * N + k] = right((uint32_t)(both >> 32), k % N);
        }
    for (uint32_t e = 0; e < 4; e++)
        for (uint32_t k = 0; k < 8 * N; k++)
            d[e] += rows[e / 2][k] * columns[e % 2][k];
}
EMULATED void bring_near(const void *) {}
EMULATED float half_of(uint32_t word, uint32_t i) { return (float)bits_as<_Float16>((uint16_t)(word >> 16 * i)); }
EMULATED void mma_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{ mma_words<float, 2>(d, a, b0, b1, half_of, half_of); }
EMULATED int dot_u8_s8(uint32_t a, uint32_t b, int sum)
{
    for (int i = 0; i < 4; i++)
        sum += (int)(a >> 8 * i & 255) * (int)(int8_t)(b >> 8 * i);
    return sum;
}
EMULATED void mma_u8_s8(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    mma_words<int, 4>(d, a, b0, b1, [](uint32_t w, uint32_t i) { return (int)(w >> 8 * i & 255); },
                      [](uint32_t w, uint32_t i) { return (int)(int8_t)(w >> 8 * i); });
}
// The instructions of device/cuda/tile.cuh. A copy is made where it begins.
#define CUDA_EMULATED 1
EMULATED uint64_t bits_of(const float (&pair)[2]) { uint64_t r; memcpy(&r, pair, sizeof r); return r; }
EMULATED float as_tf32(float v) { return __uint_as_float(__float_as_uint(v) & 0xffffe000u); }
EMULATED void mma_tf32(float (&d)[4], const float (&a)[4], const float (&b)[2])
{
    const float left[2][2] = { { a[0], a[1] }, { a[2], a[3] } }; // columns t and t + 4 of rows g and g + 8
    float rows[2][8], columns[2][8];
    for (int half = 0; half < 2; half++) {
        cuda_emulated::exchange(cuda_emulated::SHUFFLE, ~0u, bits_of(left[half]));
        for (uint32_t k = 0; k < 4; k++) {
            uint64_t both = cuda_emulated::take<uint64_t>(LANE / 4 * 4 + k);
            rows[0][half * 4 + k] = as_tf32(__uint_as_float((uint32_t)both));
            rows[1][half * 4 + k] = as_tf32(__uint_as_float((uint32_t)(both >> 32)));
        }
    }
    cuda_emulated::exchange(cuda_emulated::SHUFFLE, ~0u, bits_of(b));
    for (uint32_t j = 0; j < 2; j++)
        for (uint32_t k = 0; k < 4; k++) {
            uint64_t both = cuda_emulated::take<uint64_t>((LANE % 4 * 2 + j) * 4 + k);
            columns[j][k] = as_tf32(__uint_as_float((uint32_t)both));
            columns[j][4 + k] = as_tf32(__uint_as_float((uint32_t)(both >> 32)));
        }
    for (int e = 0; e < 4; e++)
        for (int k = 0; k < 8; k++)
            d[e] += rows[e / 2][k] * columns[e % 2][k];
}
template <bool BF16> EMULATED float half_of(uint32_t word, int which)
{
    uint16_t bits = (uint16_t)(word >> 16 * which);
    return BF16 ? __uint_as_float((uint32_t)bits << 16) : (float)bits_as<_Float16>(bits);
}
template <bool BF16> EMULATED void mma_16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    float rows[2][16], columns[2][16];
    for (int half = 0; half < 2; half++) { // columns 2 t and 2 t + 1, and 8 more, of rows g and g + 8
        cuda_emulated::exchange(cuda_emulated::SHUFFLE, ~0u, (uint64_t)a[2 * half + 1] << 32 | a[2 * half]);
        for (uint32_t k = 0; k < 8; k++) {
            uint64_t both = cuda_emulated::take<uint64_t>(LANE / 4 * 4 + k / 2);
            rows[0][half * 8 + k] = half_of<BF16>((uint32_t)both, k % 2);
            rows[1][half * 8 + k] = half_of<BF16>((uint32_t)(both >> 32), k % 2);
        }
    }
    cuda_emulated::exchange(cuda_emulated::SHUFFLE, ~0u, (uint64_t)b1 << 32 | b0);
    for (uint32_t j = 0; j < 2; j++)
        for (uint32_t k = 0; k < 8; k++) {
            uint64_t both = cuda_emulated::take<uint64_t>((LANE % 4 * 2 + j) * 4 + k / 2);
            columns[j][k] = half_of<BF16>((uint32_t)both, k % 2);
            columns[j][8 + k] = half_of<BF16>((uint32_t)(both >> 32), k % 2);
        }
    for (int e = 0; e < 4; e++)
        for (int k = 0; k < 16; k++)
            d[e] += rows[e / 2][k] * columns[e % 2][k];
}
EMULATED void copy_begin(float *to, const float *from, bool exists)
{
    for (int i = 0; i < 4; i++)
        to[i] = exists ? from[i] : 0;
}
EMULATED void copies_close() {}
template <uint32_t N> EMULATED void copies_wait() {}

// The instructions of device/cuda/peer.cuh. A load is a look at what another device may write: others go on meanwhile. The
// clock is a quarter as fast, as the host may have much else to do.
#define PEER __attribute__((no_sanitize("thread"))) EMULATED
PEER uint32_t peer_load(const uint32_t *at)
{
    cuda_run_pause();
    return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}
PEER void peer_store(uint32_t *at, uint32_t v) { __atomic_store_n(at, v, __ATOMIC_RELEASE); }
PEER uint4 peer_load(const uint4 *at)
{
    cuda_run_pause();
    return make_uint4(__atomic_load_n(&at->x, __ATOMIC_ACQUIRE), __atomic_load_n(&at->y, __ATOMIC_ACQUIRE),
                      __atomic_load_n(&at->z, __ATOMIC_ACQUIRE), __atomic_load_n(&at->w, __ATOMIC_ACQUIRE));
}
PEER void peer_store(uint4 *at, uint4 v)
{
    __atomic_store_n(&at->w, v.w, __ATOMIC_RELEASE);
    __atomic_store_n(&at->z, v.z, __ATOMIC_RELEASE);
    __atomic_store_n(&at->y, v.y, __ATOMIC_RELEASE);
    __atomic_store_n(&at->x, v.x, __ATOMIC_RELEASE);
}
EMULATED uint64_t peer_clock_ns() { return cuda_run_clock_ns() / 4; }
#undef PEER

// The usual conversions, as CUDA's overloads have them.
template <class A, class B> EMULATED typename std::common_type<A, B>::type min(A a, B b)
{ typedef typename std::common_type<A, B>::type T; return (T)b < (T)a ? (T)b : (T)a; }
template <class A, class B> EMULATED typename std::common_type<A, B>::type max(A a, B b)
{ typedef typename std::common_type<A, B>::type T; return (T)a < (T)b ? (T)b : (T)a; }
#undef LANE
#undef MEETING
#undef ATOMIC
#undef VECTOR2
#undef VECTOR4
