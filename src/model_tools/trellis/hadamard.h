// hadamard.h - the transform of EXL3, in fp32: what makes numbers nearly normal before they are coded.
#pragma once
#include <stddef.h>
#include <stdint.h>

// Sylvester's matrix over sqrt(128) on each 128 of n numbers, `stride` apart.
void hadamard(float *x, uint32_t n, size_t stride);
