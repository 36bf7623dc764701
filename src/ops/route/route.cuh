// route.cuh - what the kernels that choose experts share: from the scores of a row's experts to their
// weights.
#pragma once
#include "device/cuda/kernel.cuh"
#include "ops/route/route.h"

static __device__ __forceinline__ f32 sigmoid(f32 x)
{
    return 1 / (1 + expf(-x));
}

// Lane j's weight, of n.
static __device__ __forceinline__ f32 route_weigh(const struct route_rule &rule, f32 score, u32 n)
{
    bool exists = threadIdx.x % 32 < n;

    if (rule.scores == ROUTE_CHOSEN) {
        f32 top = warp_max(exists ? score : -INFINITY), power = exists ? expf(score - top) : 0;
        score = power / warp_sum(power);
    }
    f32 sum = fmaxf(warp_sum(exists ? score : 0), rule.floor);
    return (rule.normalise ? score / sum : score) * rule.scale;
}
