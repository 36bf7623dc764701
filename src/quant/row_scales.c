// row_scales.c - see row_scales.h.
#include "quant/row_scales.h"
#include <math.h>
#include <stdlib.h>
#include "quant/q8_0.h"
#include "quant/quant.h"

static float row_top(const struct q8_0 *blocks, uint32_t n)
{
    float top = 0;

    for (uint32_t i = 0; i < n; i++) {
        float d = fabsf(half_to_float(blocks[i].d));
        int most = 0;
        for (uint32_t k = 0; k < 32; k++)
            most = abs(blocks[i].q[k]) > most ? abs(blocks[i].q[k]) : most;
        if (!isfinite(d))
            return NAN;
        top = fmaxf(top, d * (float)most);
    }
    return top;
}

void quant_row_scales(const void *blocks, void *to, uint32_t n_cols)
{
    const struct q8_0 *from = blocks;
    struct q8_0 *out = to;
    uint32_t n = n_cols / 32;
    uint16_t half = quant_float_to_half(row_top(from, n) / 127);
    float scale = half_to_float(half);

    for (uint32_t i = 0; i < n; i++) {
        float ratio = isfinite(scale) && scale > 0 ? half_to_float(from[i].d) / scale : 0;
        out[i].d = isfinite(scale) ? half : 0x7e00;
        for (uint32_t k = 0; k < 32; k++)
            out[i].q[k] = (int8_t)fmaxf(-127, fminf(127, rintf((float)from[i].q[k] * ratio)));
    }
}
