// activation.cuh - SiLU and GELU (tanh form), for activate and for gated epilogues; see activate.h. Both are
// x times a sigmoid, since tanh(z) = 2 sigmoid(2 z) - 1. Few instructions: an epilogue runs them some 64
// times in a row. GELU by erf is activate's alone (activate.cu): its branch made a tower's product with the
// tanh form a third slower (bench/results/2026-11-22-h200-vision.md).
#pragma once
#include "gemm/gemm.h"

static __device__ __forceinline__ f32 activation_of(u32 activation, f32 x)
{
    f32 u = activation == ACTIVATION_SILU ? x : 1.5957691216f * (x + 0.044715f * x * x * x); // 2 sqrt(2 / pi)
    return __fdividef(x, 1 + __expf(-u));
}
