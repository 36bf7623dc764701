// pages.cuh - numbers of KV pages for CUDA kernels, in every format of pages.h.
#pragma once
#include "device/cuda/kernel.cuh"
#include "device/pages.h"

// K's or V's pages of a layer.
struct page_side {
    const struct page_shape *shape;
    void *pages;
    bool is_v;

    __device__ __forceinline__ u32 format() const
    {
        return is_v ? shape->v_format : shape->k_format;
    }
    __device__ __forceinline__ u64 element(u32 token, u32 dim) const
    {
        return is_v ? page_v_element(shape, token, dim) : page_k_element(shape, token, dim);
    }
};

// Stores one number; not for Q8_0, where 32 numbers share a scale.
static __device__ __forceinline__ void page_put_at(const struct page_side &s, u64 at, f32 v)
{
    u32 format = s.format();

    if (format == KV_F16)
        ((__half *)s.pages)[at] = __float2half_rn(v);
    else if (format == KV_BF16)
        ((__nv_bfloat16 *)s.pages)[at] = __float2bfloat16_rn(v);
    else
        ((f32 *)s.pages)[at] = v;
}
static __device__ __forceinline__ void page_put(const struct page_side &s, u32 page, u32 head, u32 token,
                                                u32 dim, f32 v)
{
    page_put_at(s, page_at(s.shape, page, head) + s.element(token, dim), v);
}

// Stores 32 dims by a warp, a dim per lane: dim's block. Every format.
static __device__ __forceinline__ void page_put_block(const struct page_side &s, u32 page, u32 head,
                                                      u32 token, u32 dim, f32 v)
{
    if (s.format() != KV_Q8_0) {
        page_put(s, page, head, token, dim, v);
        return;
    }
    u8 *at = (u8 *)s.pages + page_place(s.shape, page, head) * page_head_bytes(KV_Q8_0, s.shape->head_dim);
    // a block with an infinity becomes NaN as a whole, as in pages.c
    bool finite = __all_sync(~0u, isfinite(v));
    __half scale =
        __float2half_rn(finite ? fminf(warp_max(fabsf(v)) / 127, 65504) : __int_as_float(0x7fffffff));
    f32 d = __half2float(scale);
    at[s.element(token, dim)] = (u8)(i8)(d > 0 ? rintf(fminf(fmaxf(v / d, -127), 127)) : 0);
    if (dim % KV_Q8_0_BLOCK == 0)
        *(__half *)(at + page_scale_at(s.shape, token, dim)) = scale;
}

static __device__ __forceinline__ f32 page_get(const struct page_side &s, u32 page, u32 head, u32 token,
                                               u32 dim)
{
    u32 format = s.format();

    if (format == KV_Q8_0) {
        const u8 *at = (const u8 *)s.pages +
                       page_place(s.shape, page, head) * page_head_bytes(KV_Q8_0, s.shape->head_dim);
        return (f32)(i8)at[s.element(token, dim)] *
               __half2float(*(const __half *)(at + page_scale_at(s.shape, token, dim)));
    }
    u64 at = page_at(s.shape, page, head) + s.element(token, dim);
    return format == KV_F16    ? __half2float(((const __half *)s.pages)[at])
           : format == KV_BF16 ? __bfloat162float(((const __nv_bfloat16 *)s.pages)[at])
                               : ((const f32 *)s.pages)[at];
}
