// hadamard.c - see hadamard.h.
#include "model_tools/trellis/hadamard.h"
#include "quant/exl3.h"

enum { BLOCK = EXL3_BLOCK };

void hadamard(float *x, uint32_t n, size_t stride)
{
    for (uint32_t first = 0; first < n; first += BLOCK) {
        float v[BLOCK];
        for (uint32_t i = 0; i < BLOCK; i++)
            v[i] = x[(first + i) * stride] * 0.08838834764831845f;
        for (uint32_t apart = 1; apart < BLOCK; apart *= 2)
            for (uint32_t i = 0; i < BLOCK; i++)
                if (!(i & apart)) {
                    float a = v[i], b = v[i + apart];
                    v[i] = a + b;
                    v[i + apart] = a - b;
                }
        for (uint32_t i = 0; i < BLOCK; i++)
            x[(first + i) * stride] = v[i];
    }
}
