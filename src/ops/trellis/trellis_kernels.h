// trellis_kernels.h - what a processor's kernels of trellis do; trellis_cpu.c has the loops around them.
#pragma once
#include "device/cpu/cpu.h"
#include "quant/exl3.h"

enum { TRELLIS_COLUMN = 8 * EXL3_TILE * EXL3_TILE, TRELLIS_SUMS = 4 * EXL3_TILE };

struct trellis_rows {
    const float *x; // 128 numbers of a row: of each 16 those of 2 j + {0, 1, 8, 9} for j = 0 to 3
    float *sums; // TRELLIS_SUMS of a row: output o < 8 is the sum of four from 8 o on, o + 8 of the next four
    size_t x_stride, sums_stride; // from one row to the next
    uint32_t n;
};
struct trellis_kernels {
    // Eight tiles below each other, of block `in` of inputs and one tile of outputs; the order is the
    // kernel's.
    void (*decode)(const struct exl3 *m, uint32_t in, uint32_t tile_out, float out[TRELLIS_COLUMN]);
    // sums += that column times x, for each row.
    void (*add)(const float column[TRELLIS_COLUMN], const struct trellis_rows *rows);
};
extern const struct trellis_kernels trellis_avx2, trellis_avx512;
