// latent_store.cuh - the store of a row's key, and what the blocks behind the products of latent_project do.
#pragma once
#include "device/cuda/pages.cuh"
#include "ops/latent/latent_rotate.cuh"

// A block takes rows first, first + step, ... : each key is made in shared memory.
static __device__ __forceinline__ void latent_store_rows(const struct latent_store_params &p,
                                                         const struct step *step, u32 first, u32 stride)
{
    extern __shared__ __align__(16) f32 key[]; // [head_dim]
    __shared__ f32 room[33];
    const struct page_shape &s = p.args.pages;
    u32 n_latent = p.args.latent_dims, n_rotated = s.head_dim - n_latent;
    struct page_side side = { &s, p.pages, false };

    for (u32 row = first; row < step->n_rows; row += stride) {
        const f32 *in = p.in + (u64)row * s.head_dim;
        f32 squares = 0;
        for (u32 d = threadIdx.x; d < n_latent; d += blockDim.x) {
            f32 x = in[d];
            squares += x * x;
            key[d] = x * p.norm[d];
        }
        f32 factor = norm_factor(block_sum(squares, room), n_latent, p.args.eps);
        for (u32 d = threadIdx.x; d < n_latent; d += blockDim.x)
            key[d] *= factor;
        for (u32 i = threadIdx.x; i < n_rotated / 2; i += blockDim.x)
            latent_rotate_pair(in + n_latent, key + n_latent, p.angles + (u64)row * n_rotated, i, n_rotated,
                               p.args.pairs);
        __syncthreads();
        u32 position = step_positions(step)[row], token = position % PAGE_TOKENS;
        u32 page = p.table[(u64)step_slots(step)[row] * s.max_pages + position / PAGE_TOKENS];
        for (u32 d = threadIdx.x; d < s.head_dim; d += blockDim.x)
            if (s.head_dim % 32 == 0)
                page_put_block(side, page, 0, token, d, key[d]);
            else
                page_put(side, page, 0, token, d, key[d]);
        __syncthreads();
    }
}

// Blocks behind the products: one a head rotates what lies behind its x, then some store.
static __device__ __forceinline__ void latent_project_rest(const struct latent_project_params &p)
{
    u32 n_turns = p.args.n_rotated ? p.args.n_heads : 0, i = blockIdx.x - p.n_products;

    if (i < n_turns)
        latent_rotate_rest(p, i);
    else
        latent_store_rows(p.store, p.step, i - n_turns + p.n_stores * blockIdx.y, p.n_stores * gridDim.y);
}
