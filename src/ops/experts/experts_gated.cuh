// experts_gated.cuh - a hidden number of an expert, from the sums of gate and up; see experts.h.
#pragma once
#include "gemm/cuda/activation.cuh"
#include "ops/experts/experts.h"

static __device__ __forceinline__ f32 experts_gated(u32 activation, f32 limit, f32 gate, f32 up)
{
    if (limit <= 0)
        return (activation == ACTIVATION_RELU ? (gate < 0 ? 0 : gate) : activation_of(activation, gate)) * up;
    gate = gate > limit ? limit : gate; // a NaN stays
    up = up > limit ? limit : up < -limit ? -limit : up;
    return (up + 1) * __fdividef(gate, 1 + __expf(-EXPERTS_ALPHA * gate)); // as activation_of
}
