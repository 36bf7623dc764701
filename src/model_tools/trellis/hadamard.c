// hadamard.c - see hadamard.h. Columns go through a block that fits the cache, many at a time.
#include "model_tools/trellis/hadamard.h"
#include "quant/exl3.h"

enum { BLOCK = EXL3_BLOCK, WIDTH = 32 };

static const float scale = 0.08838834764831845f; // 1 / sqrt(128)

void hadamard_row(float *x, uint32_t n)
{
    for (float *v = x; v < x + n; v += BLOCK) {
        for (uint32_t i = 0; i < BLOCK; i++)
            v[i] *= scale;
        for (uint32_t apart = 1; apart < BLOCK; apart *= 2)
            for (uint32_t i = 0; i < BLOCK; i += 2 * apart)
                for (uint32_t k = i; k < i + apart; k++) {
                    float a = v[k], b = v[k + apart];
                    v[k] = a + b;
                    v[k + apart] = a - b;
                }
    }
}

static void add_and_subtract(float *a, float *b)
{
    for (uint32_t c = 0; c < WIDTH; c++) {
        float sum = a[c] + b[c];
        b[c] = a[c] - b[c];
        a[c] = sum;
    }
}

static void turn_block(float *x, size_t stride)
{
    float v[BLOCK][WIDTH];

    for (uint32_t i = 0; i < BLOCK; i++)
        for (uint32_t c = 0; c < WIDTH; c++)
            v[i][c] = x[i * stride + c] * scale;
    for (uint32_t apart = 1; apart < BLOCK; apart *= 2)
        for (uint32_t i = 0; i < BLOCK; i++)
            if (!(i & apart))
                add_and_subtract(v[i], v[i + apart]);
    for (uint32_t i = 0; i < BLOCK; i++)
        for (uint32_t c = 0; c < WIDTH; c++)
            x[i * stride + c] = v[i][c];
}

void hadamard_columns(float *x, uint32_t n_rows, uint32_t n_cols, size_t stride)
{
    for (uint32_t r = 0; r < n_rows; r += BLOCK)
        for (uint32_t c = 0; c < n_cols; c += WIDTH)
            turn_block(x + r * stride + c, stride);
}
