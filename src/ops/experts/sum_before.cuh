// sum_before.cuh - a sum over the threads of a block before each one, for the kernels that list entries by
// expert.
#pragma once
#include "device/cuda/kernel.cuh"

// all: over the block. room: a word for each warp.
static __device__ __forceinline__ u32 sum_before(u32 v, u32 *room, u32 *all)
{
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, sum = v, before = 0;

#pragma unroll
    for (u32 o = 1; o < 32; o *= 2) {
        u32 other = __shfl_up_sync(~0u, sum, o);
        sum += lane >= o ? other : 0;
    }
    if (lane == 31)
        room[warp] = sum;
    __syncthreads();
    *all = 0;
    for (u32 i = 0; i < blockDim.x / 32; i++) {
        before += i < warp ? room[i] : 0;
        *all += room[i];
    }
    __syncthreads();
    return before + sum - v;
}
