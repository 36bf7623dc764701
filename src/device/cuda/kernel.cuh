// kernel.cuh - what every CUDA kernel includes: the order of launches, sums over a warp or block, and a few
// instructions by name.
//
// A kernel's body is a device function of (arguments, tile); the extern "C" wrapper owns the tile. A kernel
// may start before the ones it depends on have ended (programmatic dependent launch). Every thread of every
// kernel calls wait_for_inputs() exactly once, and reads what an earlier launch may have written only after
// it. Before it, only weights, the step and the page table may be read. A load there costs nothing; a load
// after it delays its users by some hundreds of ns.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "base/lang.h"
#include "device/step.h"

static __device__ __forceinline__ void wait_for_inputs()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

static __device__ __forceinline__ u32 n_rows_of(const struct step *s, u32 rows)
{
    return rows == ROWS_STEP ? s->n_rows : s->n_outputs;
}

static __device__ __forceinline__ f32 warp_sum(f32 v)
{
#pragma unroll
    for (u32 o = 16; o; o >>= 1)
        v += __shfl_xor_sync(~0u, v, o);
    return v;
}
static __device__ __forceinline__ f32 warp_max(f32 v)
{
#pragma unroll
    for (u32 o = 16; o; o >>= 1)
        v = fmaxf(v, __shfl_xor_sync(~0u, v, o));
    return v;
}

// The sum over a block of up to 1024 threads, the same in every thread. room: 33 floats of shared memory.
static __device__ __forceinline__ f32 block_sum(f32 v, f32 *room)
{
    u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, n_warps = (blockDim.x + 31) / 32;

    v = warp_sum(v);
    if (lane == 0)
        room[warp] = v;
    __syncthreads();
    v = warp_sum(lane < n_warps ? room[lane] : 0);
    __syncthreads();
    return v;
}

static __device__ __forceinline__ f32 norm_factor(f32 sum_of_squares, u32 n_cols, f32 eps)
{
    return 1 / sqrtf(sum_of_squares / (f32)n_cols + eps);
}
