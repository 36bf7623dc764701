// store_vec.h - one row's K and V to their pages, for one vector type (vec_*.h). Included by rows_vec.h. The bits are those of ops/pages.c.
#include <string.h>
#include "ops/vec/row_kernels.h"

// A token's K or V of one head to its page in BF16.
VEC_INLINE void store_bf16(const struct page_token *t, const float *from)
{
    uint32_t n = t->shape->head_dim;
    uint16_t *to = (uint16_t *)t->pages + page_at(t->shape, t->page, t->head);
    uint16_t bits[512];

    for (uint32_t first = 0; first < n; first += 512) {
        uint32_t m = n - first < 512 ? n - first : 512;
        for (uint32_t i = 0; i < m; i++) {
            uint32_t x;
            memcpy(&x, from + first + i, sizeof x);
            uint32_t rounded = (x + 0x7fff + (x >> 16 & 1)) >> 16;
            bits[i] = (uint16_t)((x & 0x7fffffff) > 0x7f800000 ? x >> 16 | 0x40 : rounded);
        }
        for (uint32_t i = 0; t->is_v && i < m; i++)
            to[page_v_element(t->shape, t->token, first + i)] = bits[i];
        for (uint32_t i = 0; !t->is_v && i < m; i += 2)
            memcpy(to + page_k_element(t->shape, t->token, first + i), bits + i, 4);
    }
}

VEC_INLINE void store_odd(const struct page_token *t, const float *from)
{
    if ((t->is_v ? t->shape->v_format : t->shape->k_format) == KV_BF16)
        store_bf16(t, from);
    else
        page_write(t, from);
}

SIMD static void VEC(store_heads)(const struct rope_store_args *args, const struct rope_row *row)
{
    const struct page_shape *s = &args->pages;
    uint32_t page = row->table[row->position / PAGE_TOKENS], token = row->position % PAGE_TOKENS;

    for (uint32_t h = 0; h < s->n_kv_heads; h++) {
        if (s->k_format > KV_F16 || s->v_format != s->k_format) {
            store_odd(&(struct page_token){ s, row->k_pages, page, h, token, false }, row->k + h * s->head_dim);
            store_odd(&(struct page_token){ s, row->v_pages, page, h, token, true }, row->v + h * s->head_dim);
            continue;
        }
        const float *k = row->k + h * s->head_dim, *v = row->v + h * s->head_dim;
        uint64_t at = page_at(s, page, h);
        for (uint32_t d = 0; d < s->head_dim; d += VF) {
            uint32_t n = s->head_dim - d < VF ? s->head_dim - d : VF;
            uint64_t k_at = at + page_k_element(s, token, d), v_at = at + page_v_element(s, token, d);
            if (s->k_format == KV_F32) {
                vf_store_n((float *)row->v_pages + v_at, vf_load_n(v + d, n), n);
                for (uint32_t i = 0; i < n; i++)
                    ((float *)row->k_pages)[k_at + i * PAGE_TOKENS] = k[d + i];
                continue;
            }
            uint16_t halves[VF];
            vf_store_half_n((uint16_t *)row->v_pages + v_at, vf_load_n(v + d, n), n);
            vf_store_half_n(halves, vf_load_n(k + d, n), n);
            for (uint32_t i = 0; i < n; i++)
                ((uint16_t *)row->k_pages)[k_at + i * PAGE_TOKENS] = halves[i];
        }
    }
}
