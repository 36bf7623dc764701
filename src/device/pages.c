// pages.c - the plain definition of the formats of KV pages; the vector kernels store the same bits.
#include "device/pages.h"
#include <math.h>
#include <string.h>
#include "base/err.h"

static unsigned char *head_of(const struct page_token *t)
{
    uint32_t format = t->is_v ? t->shape->v_format : t->shape->k_format;
    return (unsigned char *)t->pages +
           page_place(t->shape, t->page, t->head) * page_head_bytes(format, t->shape->head_dim);
}

static uint64_t element(const struct page_token *t, uint32_t dim)
{
    return t->is_v ? page_v_element(t->shape, t->token, dim) : page_k_element(t->shape, t->token, dim);
}

// A block with an infinity or a NaN becomes NaN as a whole, so that the error is not hidden.
static void write_q8_0(const struct page_token *t, uint32_t dim, const float *from)
{
    unsigned char *head = head_of(t);
    float top = 0;
    bool finite = true;

    for (uint32_t i = 0; i < KV_Q8_0_BLOCK; i++) {
        top = fmaxf(top, fabsf(from[i]));
        finite = finite && isfinite(from[i]);
    }
    uint16_t scale = quant_float_to_half(finite ? fminf(top / 127, 65504) : NAN);
    float d = quant_half_to_float(scale);
    memcpy(head + page_scale_at(t->shape, t->token, dim), &scale, sizeof scale);
    for (uint32_t i = 0; i < KV_Q8_0_BLOCK; i++)
        head[element(t, dim + i)] =
            (uint8_t)(int8_t)(d > 0 ? rintf(fminf(fmaxf(from[i] / d, -127), 127)) : 0);
}

void page_write(const struct page_token *t, const float *from)
{
    uint32_t format = t->is_v ? t->shape->v_format : t->shape->k_format, n = t->shape->head_dim;
    unsigned char *head = head_of(t);

    CHECK(format < N_KV_FORMATS);
    for (uint32_t d = 0; d < n && format == KV_Q8_0; d += KV_Q8_0_BLOCK)
        write_q8_0(t, d, from + d);
    for (uint32_t d = 0; d < n && format != KV_Q8_0; d++)
        if (format == KV_F32)
            ((float *)head)[element(t, d)] = from[d];
        else
            ((uint16_t *)head)[element(t, d)] =
                format == KV_F16 ? quant_float_to_half(from[d]) : quant_float_to_bf16(from[d]);
}

void page_read(const struct page_token *t, float *to)
{
    uint32_t format = t->is_v ? t->shape->v_format : t->shape->k_format;
    const unsigned char *head = head_of(t);

    CHECK(format < N_KV_FORMATS);
    for (uint32_t d = 0; d < t->shape->head_dim; d++) {
        uint64_t at = element(t, d);
        uint16_t bits = 0;
        if (format == KV_Q8_0)
            memcpy(&bits, head + page_scale_at(t->shape, t->token, d), sizeof bits);
        else if (format != KV_F32)
            bits = ((const uint16_t *)head)[at];
        to[d] = format == KV_F32    ? ((const float *)head)[at]
                : format == KV_F16  ? quant_half_to_float(bits)
                : format == KV_BF16 ? quant_bf16_to_float(bits)
                                    : quant_half_to_float(bits) * (float)(int8_t)head[at];
    }
}
