// fours.cuh - lines of fp32 numbers, four at a time, of any length.
#pragma once
#include "base/lang.h"

// Numbers k to k + 3 of a line of n, which is aligned where n is a multiple of 4; 0 behind its end.
static __device__ __forceinline__ float4 load_four(const f32 *line, u32 k, u32 n)
{
    if (n % 4 == 0)
        return *(const float4 *)(line + k);
    return { line[k], k + 1 < n ? line[k + 1] : 0, k + 2 < n ? line[k + 2] : 0, k + 3 < n ? line[k + 3] : 0 };
}

static __device__ __forceinline__ void store_four(f32 *line, u32 k, u32 n, float4 v)
{
    if (n % 4 == 0) {
        *(float4 *)(line + k) = v;
        return;
    }
    line[k] = v.x;
    if (k + 1 < n)
        line[k + 1] = v.y;
    if (k + 2 < n)
        line[k + 2] = v.z;
    if (k + 3 < n)
        line[k + 3] = v.w;
}
