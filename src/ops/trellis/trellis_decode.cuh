// trellis_decode.cuh - codes of EXL3 (quant/exl3.h) as fragments of the tensor cores' A operand, outputs by
// inputs, in which no weight moves between lanes.
//
// A quad is four tiles below each other: 64 inputs of 16 outputs. Lane 4 g + q decodes positions 32 g to
// 32 g + 31 of tile q, which are `BITS` whole words: for t = 0 to 3 inputs 2 t + {0, 1, 8, 9} of output g,
// then of output g + 8. Their states begin in the word before, which lane 4 (g - 1) + q has.
//
//   quad           tile 0   tile 1   tile 2   tile 3         inputs 2 t + {0, 1, 8, 9} of a tile are a lane's
//   output g     |  q = 0 |  q = 1 |  q = 2 |  q = 3 |       numbers of A's row g in one m16n8k16 of halves
//   or output g + 8 |  q = 0 |  q = 1 |  q = 2 |  q = 3 |       in two m16n8k32 of bytes, four a weight
#pragma once
#include "device/cuda/kernel.cuh"
#include "ops/trellis/trellis_cuda.h"

extern __shared__ uint4 trellis_shared[];

// KERNEL(bits, ...) for each width of codes.
#define TRELLIS_EACH_WIDTH(KERNEL, ...) \
    KERNEL(1, __VA_ARGS__)              \
    KERNEL(2, __VA_ARGS__)              \
    KERNEL(3, __VA_ARGS__)              \
    KERNEL(4, __VA_ARGS__)              \
    KERNEL(5, __VA_ARGS__)              \
    KERNEL(6, __VA_ARGS__)              \
    KERNEL(7, __VA_ARGS__)              \
    KERNEL(8, __VA_ARGS__)

#ifndef CUDA_EMULATED
// d += a b, of halves: [16, 16] times [16, 8].
static __device__ __forceinline__ void mma_f16(f32 (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// The same of unsigned bytes and int8: [16, 32] times [32, 8].
static __device__ __forceinline__ void mma_u8_s8(i32 (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// sum + the products of four unsigned bytes and four of int8.
static __device__ __forceinline__ i32 dot_u8_s8(u32 a, u32 b, i32 sum)
{
    i32 d;
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(sum));
    return d;
}
static __device__ __forceinline__ void bring_near(const void *at) // into the L2 cache
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}
static __device__ __forceinline__ u32 shared_place(const void *at)
{
    return (u32)__cvta_generic_to_shared(at);
}
// N words at an address that is a multiple of as many bytes as one load may take.
template <u32 N> static __device__ __forceinline__ void shared_words(u32 at, u32 (&words)[N])
{
#pragma unroll
    for (u32 i = 0; i < N; i += N % 4 == 0 ? 4 : N % 2 == 0 ? 2 : 1)
        if constexpr (N % 4 == 0)
            asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(words[i]), "=r"(words[i + 1]), "=r"(words[i + 2]), "=r"(words[i + 3])
                         : "r"(at + i * 4));
        else if constexpr (N % 2 == 0)
            asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                         : "=r"(words[i]), "=r"(words[i + 1])
                         : "r"(at + i * 4));
        else
            asm volatile("ld.shared.u32 %0, [%1];" : "=r"(words[i]) : "r"(at + i * 4));
}
static __device__ __forceinline__ void copy_to(u32 to, const u32 *from) // 16 bytes, as tile.cuh's copies
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// A number that the compiler keeps, where it would compute it anew at each use.
static __device__ __forceinline__ void keep(u32 &number)
{
    asm volatile("" : "+r"(number));
}
#else
static u32 shared_place(const void *at)
{
    return (u32)((const u8 *)at - (const u8 *)trellis_shared);
}
template <u32 N> static void shared_words(u32 at, u32 (&words)[N])
{
    for (u32 i = 0; i < N; i++)
        words[i] = ((const u32 *)trellis_shared)[at / 4 + i];
}
static void copy_to(u32 to, const u32 *from)
{
    for (u32 i = 0; i < 4; i++)
        ((u32 *)trellis_shared)[to / 4 + i] = from[i];
}
static void keep(u32 &)
{
}
#endif

// The state that ends behind position I of a lane's words, of which w[0] is the one before. It stands twice,
// as both halves of a word, so that its bytes may come from two words. States that begin at the same bit of
// a byte are cut from the same shifted words: where they are three bytes apart, three from two.
template <u32 BITS, u32 I, u32 N> static __device__ __forceinline__ u32 state_of_lane(const u32 (&w)[N])
{
    constexpr u32 odd = BITS % 8 == 0   ? 1
                        : BITS % 4 == 0 ? BITS / 4
                        : BITS % 2 == 0 ? BITS / 2
                                        : BITS,
                  first = 16 + BITS * (I + 1), third = odd == 3 ? I * BITS / 24 % 3 : 0,
                  begin = first % 8 == 0 || odd == 1 ? first % 8 : first - 24 * third,
                  byte = (first - begin) / 8 % 4, word = (first - begin) / 32 + begin / 32;
    auto cut = [&](u32 from) {
        u32 i = from < N ? from : N - 1, next = i + 1 < N ? i + 1 : i;
        return begin % 32 ? __funnelshift_l(w[next], w[i], begin % 32) : w[i];
    };
    return byte == 3 ? __byte_perm(cut(word), cut(word + 1), 0x0707)
                     : __byte_perm(cut(word), 0, 0x3232 - 0x1111 * byte);
}
// Times a state that stands twice: the state, as (1 + 2^16) (1 - 2^16) is 1 of 32 bits.
static constexpr u32 TRELLIS_ONCE = 0xffff0001u, TRELLIS_MUL1_ONCE = EXL3_MARK_MUL1 * TRELLIS_ONCE;

// The order of the positions: neighbours share words, which keeps few registers live, and alternate between
// two outputs, so that no dot product waits for the one before it.
template <u32 BITS> TRELLIS_CONSTANT u32 position_in_turn(u32 i)
{
    return BITS == 3 && i < 120 ? i / 24 * 24 + i % 6 / 2 * 8 + i % 24 / 6 + i % 2 * 4
                                : i / 8 * 8 + i % 8 / 2 + i % 2 * 4;
}

// Positions 8 T to 8 T + 7, each twice.
template <u32 BITS, u32 T>
static __device__ __forceinline__ void states_of_lane(const u32 (&w)[BITS + 1], u32 (&states)[8])
{
    states[0] = state_of_lane<BITS, 8 * T>(w);
    states[1] = state_of_lane<BITS, 8 * T + 1>(w);
    states[2] = state_of_lane<BITS, 8 * T + 2>(w);
    states[3] = state_of_lane<BITS, 8 * T + 3>(w);
    states[4] = state_of_lane<BITS, 8 * T + 4>(w);
    states[5] = state_of_lane<BITS, 8 * T + 5>(w);
    states[6] = state_of_lane<BITS, 8 * T + 6>(w);
    states[7] = state_of_lane<BITS, 8 * T + 7>(w);
}

// The numbers of two states, as halves: of the codebook MUL1.
static __device__ __forceinline__ u32 two_of_mul1(u32 first, u32 second)
{
    u32 a = __dp4a(first * EXL3_MARK_MUL1, 0x01010101u, 0x6400u), // 1024 + the bytes' sum, as a half
        b = __dp4a(second * EXL3_MARK_MUL1, 0x01010101u, 0x6400u);
    u32 both = __byte_perm(a, b, 0x5410), scale = 0x1eee1eeeu, offset = 0xc931c931u;
    __half2 v = __hfma2(*(__half2 *)&both, *(__half2 *)&scale, *(__half2 *)&offset);
    return *(u32 *)&v;
}
// Of the others, which differ in two numbers.
static __device__ __forceinline__ u32 two_of_halves(u32 first, u32 second, u32 factor, u32 more)
{
    u32 a = ((first * factor + more) & 0x8fff8fffu) ^ 0x3b603b60u,
        b = ((second * factor + more) & 0x8fff8fffu) ^ 0x3b603b60u;
    u32 low = __byte_perm(a, b, 0x5410), high = __byte_perm(a, b, 0x7632);
    __half2 v = __hadd2(*(__half2 *)&low, *(__half2 *)&high);
    return *(u32 *)&v;
}
// MUL1: value = SCALE * sum of bytes + OFFSET; rounding each number to a half changes it by 0.001 at most.
#define TRELLIS_MUL1_SCALE  0.0067672729492187500f
#define TRELLIS_MUL1_OFFSET (1024 * TRELLIS_MUL1_SCALE - 10.3828125f)

// Sylvester's matrix of 128 over sqrt(128) times 128 numbers of a warp, of which lane l has 4 l to 4 l + 3.
static __device__ __forceinline__ void turn_128(f32 (&v)[4])
{
    u32 lane = threadIdx.x & 31;
    f32 a = v[0] + v[1], b = v[0] - v[1], c = v[2] + v[3], d = v[2] - v[3];

    v[0] = a + c;
    v[1] = b + d;
    v[2] = a - c;
    v[3] = b - d;
#pragma unroll
    for (u32 apart = 1; apart < 32; apart *= 2) {
        f32 sign = lane & apart ? -1 : 1;
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            v[i] = __fmaf_rn(v[i], sign, __shfl_xor_sync(~0u, v[i], apart));
    }
#pragma unroll
    for (u32 i = 0; i < 4; i++)
        v[i] *= 0.08838834764831845f;
}
// The same; gives the largest magnitude.
static __device__ __forceinline__ f32 turn_128_most(f32 (&v)[4])
{
    turn_128(v);
    f32 most = fmaxf(fmaxf(fabsf(v[0]), fabsf(v[1])), fmaxf(fabsf(v[2]), fabsf(v[3])));
    return __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(most)));
}
static __device__ __forceinline__ f32 half_at(const u16 *halves, u32 i)
{
    return __half2float(__ushort_as_half(__ldg(halves + i)));
}
