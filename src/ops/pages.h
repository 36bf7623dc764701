// pages.h - how the KV cache lies in memory, for the operations that write and read it. Shared by C, CUDA and MSL.
//
// Each layer has one buffer of K and one of V: [n_pages][n_kv_heads][PAGE_TOKENS][head_dim]. A page holds 16 consecutive
// tokens of one sequence. The table [n_slots][max_pages] says which page holds tokens 16*i .. 16*i+15 of a slot's sequence.
// The log [n_slots][log_stride] holds every token of a slot's sequence by position.
#pragma once
#include "base/lang.h"

#define PAGE_TOKENS 16u

enum kv_format { KV_F32, KV_F16 };

struct page_shape { // part of the arguments of rope_store, qkv and attend
    u32 n_kv_heads, head_dim;
    u32 max_pages; // of one sequence: the table's stride
    u32 format;    // enum kv_format
};

// Index of element 0 of (page, head, token within the page).
SHARED_INLINE u64 page_at(u32 n_kv_heads, u32 head_dim, u32 page, u32 head, u32 token)
{
    return (((u64)page * n_kv_heads + head) * PAGE_TOKENS + token) * head_dim;
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
