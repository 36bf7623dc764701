// latent_prompt.cuh - what the kernels of latent_prompt share.
#pragma once
#include "gemm/cuda/wgmma.cuh"
#include "ops/latent/latent_queries.cuh"
#include "ops/latent_prompt/latent_prompt_cuda.h"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

enum { GROUP_THREADS = 128, N_GROUPS = 2 }; // threads of a warpgroup

// Of 168 registers a thread those of the warpgroup that brings go to the others.
static __device__ __forceinline__ void give_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
}
static __device__ __forceinline__ void take_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
}

// Byte offset in a chunk of a row's 16-byte word.
static __device__ __forceinline__ u32 word_place(u32 row, u32 word)
{
    return row * 128 + ((word ^ (row & 7)) * 16);
}
static __device__ __forceinline__ void group_sync(u32 group)
{
    asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory"); // GROUP_THREADS
}
static __device__ __forceinline__ void show_stores() // to products and bulk copies
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// The tile of keys of turn tile `tile`.
static __device__ __forceinline__ u8 *tile_at(const struct latent_prompt_params &p, u32 head, u32 tile,
                                              u32 n_chunks)
{
    return p.tiles + ((u64)head * p.n_tiles + tile) * n_chunks * PROMPT_CHUNK;
}

// A ring of stages.
template <u32 N> struct ring {
    u32 at = 0, phase = 0;

    __device__ __forceinline__ void next()
    {
        at = at + 1 == N ? 0 : at + 1;
        phase ^= at == 0;
    }
};
#endif
