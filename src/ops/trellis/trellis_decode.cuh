// trellis_decode.cuh - codes of EXL3 (quant/exl3.h) as fragments of the tensor cores' B operand: a lane's
// eight numbers of a tile are its own in mma.m16n8k16, so no weight moves between lanes.
//
// Lane t has positions 8 t to 8 t + 7: inputs 2 (t % 4) + {0, 1, 8, 9} of output t / 4, then of output t / 4
// + 8. Their states begin 16 - bits before the lane's own bits and lie in two words, or three.
#pragma once
#include "device/cuda/kernel.cuh"
#include "ops/trellis/trellis_cuda.h"

extern __shared__ uint4 trellis_shared[];

#ifndef CUDA_EMULATED
// d += a b, of halves: [16, 16] times [16, 8].
static __device__ __forceinline__ void mma_f16(f32 (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// The same of int8 and unsigned bytes: [16, 32] times [32, 8].
static __device__ __forceinline__ void mma_s8_u8(i32 (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
static __device__ __forceinline__ void bring_near(const void *at) // into the L2 cache
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}
static __device__ __forceinline__ u32 shared_place(const void *at)
{
    return (u32)__cvta_generic_to_shared(at);
}
static __device__ __forceinline__ u32 shared_word(u32 at)
{
    u32 word;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(at));
    return word;
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
// The upper word of two after a shift by N < 32.
template <u32 N> static __device__ __forceinline__ u32 shift_two(u32 low, u32 high)
{
    u32 word;
    asm("shf.l.wrap.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(low), "r"(high), "n"(N));
    return word;
}
#else
static u32 shared_place(const void *at)
{
    return (u32)((const u8 *)at - (const u8 *)trellis_shared);
}
static u32 shared_word(u32 at)
{
    return *(const u32 *)((const u8 *)trellis_shared + at);
}
static void copy_to(u32 to, const u32 *from)
{
    for (u32 i = 0; i < 4; i++)
        ((u32 *)trellis_shared)[to / 4 + i] = from[i];
}
static void keep(u32 &)
{
}
template <u32 N> static u32 shift_two(u32 low, u32 high)
{
    return __funnelshift_l(low, high, N);
}
#endif

// Where a lane's window of a tile lies: words, and bits before it in the first, which of 4 and 8 bits are all
// alike.
template <u32 BITS> struct lane_window {
    static constexpr u32 WORDS = BITS <= 4 ? 2 : 3, ALIKE = (32 - (16 - BITS)) % 32;
    u32 at[3], skip; // at: in bytes

    __device__ __forceinline__ lane_window(u32 lane)
    {
        u32 first = (8 * BITS * lane + 256 * BITS - (16 - BITS)) % (256 * BITS);
        skip = first % 32;
#pragma unroll
        for (u32 i = 0; i < 3; i++)
            at[i] = (first / 32 + i) % (8 * BITS) * 4;
    }
};

// 16 bits of a word, from `first` on, counted from the highest.
template <u32 FIRST> static __device__ __forceinline__ u32 bits_16(u32 word)
{
    return FIRST == 8 ? __byte_perm(word, 0, 0x4421) : word << FIRST >> 16;
}

// States I to 7 of words in which they begin at bit FIRST.
template <u32 BITS, u32 FIRST, u32 I>
static __device__ __forceinline__ void take_states(const u32 (&w)[4], u32 (&states)[8])
{
    if constexpr (I < 8) {
        constexpr u32 at = FIRST + I * BITS, word = at / 32, before = at % 32;
        if constexpr (before <= 16)
            states[I] = bits_16<before>(w[word]);
        else
            states[I] = bits_16<(before >= 24 ? 8 : 0)>(
                shift_two<(before >= 24 ? before - 8 : before)>(w[word + 1], w[word]));
        take_states<BITS, FIRST, I + 1>(w, states);
    }
}

// words: where the lane's first word lies, and the others.
template <u32 BITS>
static __device__ __forceinline__ void tile_states(const u32 (&words)[3], u32 tile, u32 skip,
                                                   u32 (&states)[8])
{
    u32 w[4] = { shared_word(words[0] + tile), shared_word(words[1] + tile), 0, 0 };

    if (lane_window<BITS>::WORDS == 3)
        w[2] = shared_word(words[2] + tile);
    if constexpr (BITS % 4 == 0) {
        take_states<BITS, lane_window<BITS>::ALIKE, 0>(w, states);
    } else {
#pragma unroll
        for (u32 i = 0; i < lane_window<BITS>::WORDS; i++)
            w[i] = __funnelshift_l(w[i + 1], w[i], skip);
        take_states<BITS, 0, 0>(w, states);
    }
}

// The numbers of two states, as halves.
template <u32 CODEBOOK> static __device__ __forceinline__ u32 two_values(u32 first, u32 second)
{
    if constexpr (CODEBOOK == EXL3_MUL1) {
        u32 a = __dp4a(first * EXL3_MARK_MUL1, 0x01010101u, 0x6400u), // 1024 + the bytes' sum, as a half
            b = __dp4a(second * EXL3_MARK_MUL1, 0x01010101u, 0x6400u);
        u32 both = __byte_perm(a, b, 0x5410), scale = 0x1eee1eeeu, offset = 0xc931c931u;
        __half2 v = __hfma2(*(__half2 *)&both, *(__half2 *)&scale, *(__half2 *)&offset);
        return *(u32 *)&v;
    } else {
        constexpr u32 factor = CODEBOOK == EXL3_MCG ? EXL3_MARK_MCG : 89226354u,
                      more = CODEBOOK == EXL3_MCG ? 0 : 64248484u;
        u32 a = ((first * factor + more) & 0x8fff8fffu) ^ 0x3b603b60u,
            b = ((second * factor + more) & 0x8fff8fffu) ^ 0x3b603b60u;
        u32 low = __byte_perm(a, b, 0x5410), high = __byte_perm(a, b, 0x7632);
        __half2 v = __hadd2(*(__half2 *)&low, *(__half2 *)&high);
        return *(u32 *)&v;
    }
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
    for (u32 apart = 1; apart < 32; apart *= 2)
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            f32 other = __shfl_xor_sync(~0u, v[i], apart);
            v[i] = lane & apart ? other - v[i] : v[i] + other;
        }
#pragma unroll
    for (u32 i = 0; i < 4; i++)
        v[i] *= 0.08838834764831845f;
}
static __device__ __forceinline__ f32 half_at(const u16 *halves, u32 i)
{
    return __half2float(__ushort_as_half(__ldg(halves + i)));
}
