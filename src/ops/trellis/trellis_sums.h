// trellis_sums.h - what a CPU does with 128 outputs of a matrix of codes and the rows of activations that are
// multiplied with it: for products with one matrix (trellis_cpu.c) and with experts'.
#pragma once
#include "ops/trellis/trellis_kernels.h"

enum { TRELLIS_PASS_ROWS = 128 }; // rows for which a block's codes are decoded once

struct trellis_sums_room { // a thread's own, for one call
    _Alignas(64) union {
        f32 block[EXL3_BLOCK][EXL3_BLOCK]; // of the plain loop
        struct {
            f32 column[TRELLIS_COLUMN];
            f32 sums[TRELLIS_PASS_ROWS][EXL3_BLOCK / EXL3_TILE][TRELLIS_SUMS];
        } vec;
    };
};

// kernels: NULL: the plain loop, in fp32.
// H times n numbers, a multiple of 128, and then in the order in which the kernels read them.
void trellis_turn(const struct trellis_kernels *kernels, f32 *numbers, uint32_t n);
// sums[r] = 128 outputs of turned row r, from output 128 * out on, without the transform back. At most
// TRELLIS_PASS_ROWS rows, x_stride numbers apart.
void trellis_sums(const struct trellis_kernels *kernels, const struct exl3 *m, uint32_t out,
                  const struct trellis_rows *rows, struct trellis_sums_room *room, f32 (*sums)[EXL3_BLOCK]);
