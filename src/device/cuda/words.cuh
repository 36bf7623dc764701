// words.cuh - words that blocks of one launch hand on through memory, for kernels whose blocks all run at
// once.
//
// Memory is zero between launches, and a word that has arrived is not zero: a zero is stored as -0. So there
// is no flag behind the data, and no fence is needed. Numbers travel as fp32 or as pairs of bf16.
#pragma once
#include "device/cuda/kernel.cuh"

static __device__ __forceinline__ void publish(u32 *to, u32 word)
{
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
}
static __device__ __forceinline__ void publish_number(u32 *to, f32 v)
{
    publish(to, v == 0 ? 0x80000000u : __float_as_uint(v));
}
// Two numbers as bf16, both not zero.
static __device__ __forceinline__ void publish_pair(u32 *to, f32 low, f32 high)
{
    u32 a = __bfloat16_as_ushort(__float2bfloat16_rn(low)),
        b = __bfloat16_as_ushort(__float2bfloat16_rn(high));
    publish(to, (a ? a : 0x8000) | (b ? b : 0x8000) << 16);
}

static __device__ __forceinline__ u32 load_word(const u32 *at)
{
    u32 v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
    return v;
}
static __device__ __forceinline__ f32 await_number(const u32 *at)
{
    u32 v;
    do
        v = load_word(at);
    while (!v);
    return __uint_as_float(v);
}

static __device__ __forceinline__ uint4 load_four(const u32 *at)
{
    uint4 v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at)
                 : "memory");
    return v;
}
static __device__ __forceinline__ bool are_there(const uint4 &v) // four words, each written at once
{
    return v.x && v.y && v.z && v.w;
}

static __device__ __forceinline__ void open_pairs(const uint4 &v, f32 (&x)[8])
{
    const u32 words[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
    for (u32 i = 0; i < 8; i++)
        x[i] = __uint_as_float(i % 2 ? words[i / 2] & 0xffff0000 : words[i / 2] << 16);
}
static __device__ __forceinline__ void open_numbers(const uint4 &a, const uint4 &b, f32 (&x)[8])
{
    const u32 words[8] = { a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w };
#pragma unroll
    for (u32 i = 0; i < 8; i++)
        x[i] = __uint_as_float(words[i]);
}
