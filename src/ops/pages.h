// pages.h - how the KV cache lies in memory, for the operations that write and read it. Shared by C, CUDA and MSL.
//
// Each layer has one buffer of K [n_pages][n_kv_heads][head_dim][PAGE_TOKENS] and one of V [n_pages][n_kv_heads][PAGE_TOKENS][head_dim].
// A page holds 16 consecutive tokens of one sequence. K lies by dimension, so that 16 scores fill a vector and need no sum across it. The table [n_slots][max_pages] says which page holds tokens 16*i .. 16*i+15 of a slot's sequence.
// The log [n_slots][log_stride] holds every token of a slot's sequence by position.
#pragma once
#include "base/lang.h"

#define PAGE_TOKENS 16u
#if defined(__METAL_VERSION__)
#define BY_REFERENCE constant
#else
#define BY_REFERENCE
#endif

enum kv_format { KV_F32, KV_F16 };

struct page_shape { // part of the arguments of rope_store, qkv and attend
    u32 n_kv_heads, head_dim;
    u32 max_pages; // of one sequence: the table's stride
    u32 format;    // enum kv_format
};

// Index of the first element of (page, head), and from there to an element of K or V.
SHARED_INLINE u64 page_at(const BY_REFERENCE struct page_shape *s, u32 page, u32 head)
{
    return ((u64)page * s->n_kv_heads + head) * PAGE_TOKENS * s->head_dim;
}
SHARED_INLINE u64 page_k_element(const BY_REFERENCE struct page_shape *s, u32 token, u32 dim)
{
    (void)s;
    return (u64)dim * PAGE_TOKENS + token;
}
SHARED_INLINE u64 page_v_element(const BY_REFERENCE struct page_shape *s, u32 token, u32 dim)
{
    return (u64)token * s->head_dim + dim;
}

#ifdef HOST_C
#include "device/tape.h"

// One layer's pages, as operations record them.
struct pages {
    const struct buffer *k, *v, *table;
    struct page_shape shape;
};

static inline enum operand_type page_operand_type(const struct page_shape *s)
{
    return s->format == KV_F32 ? OPERAND_F32 : OPERAND_F16;
}
#endif
