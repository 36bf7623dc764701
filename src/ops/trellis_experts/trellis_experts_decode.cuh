// trellis_experts_decode.cuh - codes of EXL3 (quant/exl3.h) from memory as fragments of the tensor cores' A
// operand, outputs by inputs: a lane's eight numbers of a tile are its own in mma.m16n8k16, so no weight
// moves between lanes.
//
// Lane t has positions 8 t to 8 t + 7: inputs 2 (t % 4) + {0, 1, 8, 9} of output t / 4, then of output t / 4
// + 8. Their states begin 16 - bits before the lane's own bits and lie in two words, or three.
#pragma once
#include "ops/trellis/trellis_decode.cuh"

// Where a lane's states of a tile begin: a word, and a bit in it, which of 4 and 8 bits all lanes share.
template <u32 BITS> struct code_window {
    static constexpr u32 WORDS = BITS <= 4 ? 2 : 3, SHARED_SKIP = (16 + BITS) % 32;
    u32 at[WORDS], skip; // at: words of the tile, a ring

    __device__ __forceinline__ code_window(u32 lane)
    {
        u32 first = (8 * BITS * lane + 257 * BITS - 16) % (256 * BITS);
        skip = first % 32;
#pragma unroll
        for (u32 i = 0; i < WORDS; i++)
            at[i] = (first / 32 + i) % (8 * BITS);
    }
};

// The 16 bits from bit FIRST of some words on, of which the highest is the first.
template <u32 FIRST, u32 N> static __device__ __forceinline__ u32 code_state(const u32 (&w)[N])
{
    constexpr u32 word = FIRST / 32, bit = FIRST % 32;

    if constexpr (bit == 0)
        return w[word] >> 16;
    else if constexpr (bit == 8)
        return __byte_perm(w[word], 0, 0x4421);
    else if constexpr (bit <= 16)
        return w[word] >> (16 - bit) & 0xffff;
    else
        return __funnelshift_l(w[word + 1], w[word], bit - 16) & 0xffff;
}

template <u32 BITS, u32 FIRST, u32 I, u32 N>
static __device__ __forceinline__ void code_states(const u32 (&w)[N], u32 (&states)[8])
{
    if constexpr (I < 8) {
        states[I] = code_state<FIRST + I * BITS>(w);
        code_states<BITS, FIRST, I + 1>(w, states);
    }
}

// Of a lane's words.
template <u32 BITS>
static __device__ __forceinline__ void decode_states(const u32 (&words)[code_window<BITS>::WORDS], u32 skip,
                                                     u32 (&states)[8])
{
    constexpr u32 N = code_window<BITS>::WORDS;
    u32 w[N + 1];

#pragma unroll
    for (u32 i = 0; i < N; i++)
        w[i] = words[i];
    w[N] = 0;
    if constexpr (BITS % 4 == 0) {
        code_states<BITS, code_window<BITS>::SHARED_SKIP, 0>(w, states);
    } else {
#pragma unroll
        for (u32 i = 0; i < N; i++)
            w[i] = __funnelshift_l(w[i + 1], w[i], skip);
        code_states<BITS, 0, 0>(w, states);
    }
}

// The numbers of two states, as halves.
static __device__ __forceinline__ u32 values_of(u32 codebook, u32 first, u32 second)
{
    if (codebook == EXL3_MUL1) {
        u32 a = __dp4a(first * EXL3_MARK_MUL1, 0x01010101u, 0x6400u), // 1024 + the bytes' sum, as a half
            b = __dp4a(second * EXL3_MARK_MUL1, 0x01010101u, 0x6400u);
        u32 both = __byte_perm(a, b, 0x5410), scale = 0x1eee1eeeu, offset = 0xc931c931u;
        __half2 v = __hfma2(*(__half2 *)&both, *(__half2 *)&scale, *(__half2 *)&offset);
        return *(u32 *)&v;
    }
    u32 factor = codebook == EXL3_MCG ? EXL3_MARK_MCG : 89226354u,
        more = codebook == EXL3_MCG ? 0 : 64248484u;
    u32 a = ((first * factor + more) & 0x8fff8fffu) ^ 0x3b603b60u,
        b = ((second * factor + more) & 0x8fff8fffu) ^ 0x3b603b60u;
    u32 low = __byte_perm(a, b, 0x5410), high = __byte_perm(a, b, 0x7632);
    __half2 v = __hadd2(*(__half2 *)&low, *(__half2 *)&high);
    return *(u32 *)&v;
}

// The state at any position, of any bits.
static __device__ __forceinline__ u32 state_at(const u32 *tile, u32 bits, u32 position)
{
    u32 first = (position * bits + 257 * bits - 16) % (256 * bits), word = first / 32,
        next = word + 1 == 8 * bits ? 0 : word + 1;

    return __funnelshift_l(__ldg(tile + next), __ldg(tile + word), first % 32) >> 16;
}
