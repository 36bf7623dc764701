// store_vec.h - one head's K or V of one row to its page, for one vector type (vec_*.h). Included by
// rows_vec.h. The bits are those of device/pages.c.
#include <string.h>
#include "ops/vec/row_kernels.h"

// In BF16: of K two neighbouring numbers lie together, and the next two PAGE_TOKENS pairs further on; V's are
// two apart.
VEC_INLINE void store_bf16(const struct page_token *t, const float *from)
{
    const struct page_shape *s = t->shape;
    uint16_t *page = (uint16_t *)t->pages + page_at(s, t->page, t->head), bits[512];

    for (uint32_t first = 0; first < s->head_dim; first += 512) {
        uint32_t n = s->head_dim - first < 512 ? s->head_dim - first : 512;
        uint16_t *to =
            page + (t->is_v ? page_v_element(s, t->token, first) : page_k_element(s, t->token, first));
        for (uint32_t i = 0; i < n; i++) {
            uint32_t x;
            memcpy(&x, from + first + i, sizeof x);
            uint32_t rounded = (x + 0x7fff + (x >> 16 & 1)) >> 16;
            bits[i] = (uint16_t)((x & 0x7fffffff) > 0x7f800000 ? x >> 16 | 0x40 : rounded);
        }
        if (t->is_v)
            for (uint32_t i = 0; i < n; i++)
                to[2 * i] = bits[i];
        else
            for (uint32_t i = 0; i < n; i += 2)
                memcpy(to + i * PAGE_TOKENS, bits + i, 4);
    }
}

// In F32 or F16: V's numbers lie side by side, K's are PAGE_TOKENS apart.
VEC_INLINE void store_numbers(const struct page_token *t, const float *from, const bool half)
{
    const struct page_shape *s = t->shape;
    uint64_t at = page_at(s, t->page, t->head) +
                  (t->is_v ? page_v_element(s, t->token, 0) : page_k_element(s, t->token, 0));
    float *floats = (float *)t->pages + at;
    uint16_t *halves = (uint16_t *)t->pages + at, some[VF];

    for (uint32_t d = 0; d < s->head_dim; d += VF) {
        uint32_t n = s->head_dim - d < VF ? s->head_dim - d : VF;
        vf x = vf_load_n(from + d, n);
        if (t->is_v && half)
            vf_store_half_n(halves + d, x, n);
        else if (t->is_v)
            vf_store_n(floats + d, x, n);
        else if (half)
            vf_store_half_n(some, x, n);
        for (uint32_t i = 0; !t->is_v && i < n; i++)
            if (half)
                halves[(d + i) * PAGE_TOKENS] = some[i];
            else
                floats[(d + i) * PAGE_TOKENS] = from[d + i];
    }
}

VEC_INLINE void store_head(const struct page_token *t, const float *from)
{
    switch (t->is_v ? t->shape->v_format : t->shape->k_format) {
    case KV_F32:
        store_numbers(t, from, false);
        break;
    case KV_F16:
        store_numbers(t, from, true);
        break;
    case KV_BF16:
        store_bf16(t, from);
        break;
    default:
        page_write(t, from);
    }
}
