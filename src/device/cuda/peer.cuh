// peer.cuh - loads and stores of memory that kernels of several GPUs use at the same time, and a clock, by
// name, so that the emulated GPUs of the tests can stand in for them.
//
// A store of 16 bytes may arrive in pieces; words do not.
#pragma once
#include "base/lang.h"

#ifndef CUDA_EMULATED
static __device__ __forceinline__ uint4 peer_load(const uint4 *at)
{
    uint4 v;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at)
                 : "memory");
    return v;
}
static __device__ __forceinline__ void peer_store(uint4 *at, uint4 v)
{
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(at), "r"(v.x), "r"(v.y), "r"(v.z),
                 "r"(v.w)
                 : "memory");
}
static __device__ __forceinline__ u32 peer_load(const u32 *at)
{
    u32 v;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
    return v;
}
static __device__ __forceinline__ void peer_store(u32 *at, u32 v)
{
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(at), "r"(v) : "memory");
}
static __device__ __forceinline__ u64 peer_clock_ns()
{
    u64 ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}
#endif
