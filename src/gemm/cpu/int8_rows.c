// int8_rows.c - see int8_rows.h: the part of packing rows as int8 that needs no vectors.
#include "gemm/cpu/int8_rows.h"
#include <math.h>

static float inverse_of(float scale)
{
    return scale > 1e-37f ? 1 / scale : 0;
}

static void block_sums(const struct product_block *b)
{
    int32_t sum = 0;

    for (uint32_t i = 0; i < PANEL_SUB; i++)
        sum += b->q[i];
    *b->minus_sum = -sum;
    *b->sum = *b->scale * (float)sum;
}

// A NaN counts as the largest number, and makes the whole block NaN.
static void super_scales(struct product_super *s, const float *tops, float *factors)
{
    float top = 0;

    for (uint32_t i = 0; i < SUPER_SUBS; i++)
        top = tops[i] > top || isnan(tops[i]) ? tops[i] : top;
    float scale = top / 127, inverse = inverse_of(scale);
    s->scale = scale / (1 << SUPER_BITS);
    for (uint32_t i = 0; i < SUPER_SUBS; i++) {
        int32_t halvings = 0;
        for (uint32_t j = 1; j <= SUPER_BITS; j++)
            halvings += tops[i] * (float)(1 << j) <= top;
        s->left[i] = SUPER_BITS - halvings;
        factors[i] = inverse * (float)(1 << halvings);
    }
}

// Multiplied by 1 << left, divided by 1 << SUPER_SUM_SHIFT, rounded down.
static int32_t super_sum(int32_t sum, int32_t left)
{
    return sum * (1 << SUPER_BITS >> SUPER_SUM_SHIFT) >> (SUPER_BITS - left);
}

static void super_sums(struct product_super *s)
{
    int32_t sums[2 * SUPER_SUBS];

    for (uint32_t i = 0; i < 2 * SUPER_SUBS; i++) {
        int32_t sum = 0;
        for (uint32_t j = 0; j < 16; j++)
            sum += s->q[16 * i + j];
        s->minus_sum[i] = -sum;
        sums[i] = sum;
    }
    for (uint32_t i = 0; i < 2 * SUPER_SUBS; i++) { // swaps numbers 1 and 2 of each four
        uint32_t from = i % 4 == 1 ? i + 1 : i % 4 == 2 ? i - 1 : i;
        s->sums_16[i] = (int16_t)super_sum(sums[from], s->left[from / 2]);
        if (i < SUPER_SUBS)
            s->sums_32[i] = (int16_t)super_sum(sums[2 * from] + sums[2 * from + 1], s->left[from]);
    }
}

void int8_blocks(const struct int8_kernels *k, const float *x, uint32_t n, void *out)
{
    for (uint32_t i = 0; i < n / PANEL_SUB; i++, x += PANEL_SUB) {
        struct product_block b = product_block(out, n, i);
        *b.scale = k->top(x) / 127;
        k->round(x, inverse_of(*b.scale), b.q);
        block_sums(&b);
    }
}

void int8_supers(const struct int8_kernels *k, const float *x, uint32_t n, struct product_super *out)
{
    for (uint32_t b = 0; b < n / PANEL_SUPER; b++, out++) {
        float tops[SUPER_SUBS], factors[SUPER_SUBS];
        for (uint32_t i = 0; i < SUPER_SUBS; i++)
            tops[i] = k->top(x + i * PANEL_SUB);
        super_scales(out, tops, factors);
        for (uint32_t i = 0; i < SUPER_SUBS; i++, x += PANEL_SUB)
            k->round(x, factors[i], out->q + i * PANEL_SUB);
        super_sums(out);
    }
}
