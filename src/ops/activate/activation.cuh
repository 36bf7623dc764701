// activation.cuh - SiLU and GELU (tanh form), for activate and for products that end in one; see activate.h.
#pragma once
#include "ops/activate/activate.h"

static __device__ __forceinline__ f32 activation_of(u32 activation, f32 x)
{
    if (activation == ACTIVATION_SILU)
        return x / (1 + expf(-x));
    return 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x))); // sqrt(2 / pi)
}
