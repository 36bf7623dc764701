// hadamard.h - the transform of EXL3, in fp32: what makes numbers nearly normal before they are coded.
// Sylvester's matrix over sqrt(128), on each 128 numbers.
#pragma once
#include <stddef.h>
#include <stdint.h>

void hadamard_row(float *x, uint32_t n); // n: a multiple of 128
// Of columns, each by itself: x [n_rows, stride], of which n_cols are taken; n_rows is a multiple of 128,
// n_cols of 32.
void hadamard_columns(float *x, uint32_t n_rows, uint32_t n_cols, size_t stride);
