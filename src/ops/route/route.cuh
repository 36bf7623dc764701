// route.cuh - what the kernels that choose experts share: the choice, and from the scores of a row's experts
// to their weights.
#pragma once
#include "device/cuda/kernel.cuh"
#include "ops/route/route.h"

static __device__ __forceinline__ f32 sigmoid(f32 x)
{
    return 1 / (1 + expf(-x));
}

// A key for each number that is one: keys have the numbers' order, and none is 0.
static __device__ __forceinline__ u32 order_key(f32 v)
{
    u32 bits = __float_as_uint(v + 0.0f); // of the two zeros one
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// A warp chooses: the largest keys in turn, ties to the lowest expert. Returns slot j's expert to lane j.
// keys: of a lane's experts, which are those with its number, 32 more, and so on.
template <u32 N> static __device__ __forceinline__ u32 choose(u32 (&keys)[N], u32 n_slots)
{
    u32 lane = threadIdx.x & 31, chosen = 0;

    for (u32 slot = 0; slot < n_slots; slot++) {
        u32 top = 0, expert = ~0u;
#pragma unroll
        for (u32 i = 0; i < N; i++)
            top = max(top, keys[i]);
        top = __reduce_max_sync(~0u, top);
#pragma unroll
        for (u32 i = 0; i < N; i++)
            expert = min(expert, keys[i] == top ? i * 32 + lane : ~0u);
        expert = __reduce_min_sync(~0u, expert);
#pragma unroll
        for (u32 i = 0; i < N; i++)
            keys[i] = expert == i * 32 + lane ? 0 : keys[i];
        chosen = lane == slot ? expert : chosen;
    }
    return chosen;
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
