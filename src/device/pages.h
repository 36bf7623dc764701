// pages.h - the memory layout of the KV cache, for the operations that write and read it. For C, CUDA, MSL.
//
// Each layer has one buffer of K and one of V, each [n_pages][n_kv_heads] of what a page holds of one head:
// 16 consecutive tokens of a sequence. Numbers lie in groups that fill 4 bytes, as kernels multiply them:
//   K [head_dim / group][PAGE_TOKENS][group dims]     16 scores fill a vector and need no sum across it
//   V [PAGE_TOKENS / group][head_dim][group tokens]
// A group is 1 number in F32 and F16, 2 in BF16, 4 in Q8_0. Behind the numbers of Q8_0 come fp16 scales, of K
// and of V alike [head_dim / 32][PAGE_TOKENS]. A scale belongs to 32 neighbouring dims of one token, so that
// a token is stored without its neighbours. K and V may have different formats. The page table
// [n_slots][max_pages] says which page holds tokens 16*i .. 16*i+15 of a slot's sequence. The token history
// [n_slots][history_stride] holds every token of a slot's sequence by position.
#pragma once
#include "base/lang.h"

#define PAGE_TOKENS 16u
#if defined(__METAL_VERSION__)
#define BY_REFERENCE constant
#else
#define BY_REFERENCE
#endif

enum kv_format { KV_F32, KV_F16, KV_BF16, KV_Q8_0, N_KV_FORMATS };
#define KV_Q8_0_BLOCK 32u // dims that share a scale

struct page_shape { // part of the arguments of rope_store, qkv and attend
    u32 n_kv_heads, head_dim;
    u32 max_pages;          // of one sequence: the table's stride
    u16 k_format, v_format; // enum kv_format
};

SHARED_INLINE u32 page_group(u32 format)
{
    return format == KV_BF16 ? 2 : format == KV_Q8_0 ? 4 : 1;
}
// head_dim is a multiple of this.
SHARED_INLINE u32 page_dims(u32 format)
{
    return format == KV_Q8_0 ? KV_Q8_0_BLOCK : page_group(format);
}
SHARED_INLINE u32 page_number_bytes(u32 format)
{
    return format == KV_F32 ? 4 : format == KV_Q8_0 ? 1 : 2;
}
// Bytes of one head in a page, a multiple of 32.
SHARED_INLINE u32 page_head_bytes(u32 format, u32 head_dim)
{
    return PAGE_TOKENS * head_dim * page_number_bytes(format) +
           (format == KV_Q8_0 ? PAGE_TOKENS * (head_dim / KV_Q8_0_BLOCK) * 2 : 0);
}

// Index of the first number of (page, head) in formats without scales. In Q8_0 the byte address is page_place
// * page_head_bytes.
SHARED_INLINE u64 page_place(const BY_REFERENCE struct page_shape *s, u32 page, u32 head)
{
    return (u64)page * s->n_kv_heads + head;
}
SHARED_INLINE u64 page_at(const BY_REFERENCE struct page_shape *s, u32 page, u32 head)
{
    return page_place(s, page, head) * PAGE_TOKENS * s->head_dim;
}
// Offset from there of a number of K or V, and in bytes of its scale.
SHARED_INLINE u64 page_k_element(const BY_REFERENCE struct page_shape *s, u32 token, u32 dim)
{
    u32 group = page_group(s->k_format);
    return ((u64)(dim / group) * PAGE_TOKENS + token) * group + dim % group;
}
SHARED_INLINE u64 page_v_element(const BY_REFERENCE struct page_shape *s, u32 token, u32 dim)
{
    u32 group = page_group(s->v_format);
    return ((u64)(token / group) * s->head_dim + dim) * group + token % group;
}
SHARED_INLINE u64 page_scale_at(const BY_REFERENCE struct page_shape *s, u32 token, u32 dim)
{
    return PAGE_TOKENS * s->head_dim + ((u64)(dim / KV_Q8_0_BLOCK) * PAGE_TOKENS + token) * 2;
}

#ifdef HOST_C
#include "device/tape.h"

// One layer's pages, as operations record them.
struct pages {
    const struct buffer *k, *v, *table;
    struct page_shape shape;
};

// Numbers with scales between them are left out of tape_diff.
static inline enum operand_type page_operand_type(uint32_t format)
{
    static const enum operand_type types[N_KV_FORMATS] = { OPERAND_F32, OPERAND_F16, OPERAND_BF16,
                                                           OPERAND_PRIVATE };
    return types[format];
}
static inline bool page_fits(const struct page_shape *s) // whether the formats allow this head_dim
{
    return s->head_dim % page_dims(s->k_format) == 0 && s->head_dim % page_dims(s->v_format) == 0;
}

// One token's K or V of one head, to and from its page: the definition of the formats.
struct page_token {
    const struct page_shape *shape;
    void *pages; // K's or V's
    uint32_t page, head, token;
    bool is_v;
};
void page_write(const struct page_token *t, const float *from); // [head_dim]
void page_read(const struct page_token *t, float *to);
#endif
