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
template <u32 N> static __device__ __forceinline__ u32 choose_with_ties(u32 (&keys)[N], u32 n_slots)
{
    u32 lane = threadIdx.x & 31, chosen = 0;

#pragma unroll 1
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

// The same. Where no two of the largest keys are alike a slot takes one maximum over the lanes, whose own
// keys are sorted.
template <u32 N> static __device__ __forceinline__ u32 choose(u32 (&keys)[N], u32 n_slots)
{
    u32 lane = threadIdx.x & 31, chosen = 0, sorted[N], expert[N];
    bool tied = false;

#pragma unroll
    for (u32 i = 0; i < N; i++) {
        sorted[i] = keys[i];
        expert[i] = i * 32 + lane;
    }
#pragma unroll
    for (u32 end = N - 1; end > 0; end--)
#pragma unroll
        for (u32 i = 0; i < end; i++) {
            bool swap = sorted[i] < sorted[i + 1];
            u32 key = sorted[i], id = expert[i];
            sorted[i] = swap ? sorted[i + 1] : key;
            expert[i] = swap ? expert[i + 1] : id;
            sorted[i + 1] = swap ? key : sorted[i + 1];
            expert[i + 1] = swap ? id : expert[i + 1];
        }
#pragma unroll 1
    for (u32 slot = 0; slot < n_slots; slot++) {
        bool mine = sorted[0] == __reduce_max_sync(~0u, sorted[0]);
        u32 owners = __ballot_sync(~0u, mine), id = __shfl_sync(~0u, expert[0], __ffs(owners) - 1);
        tied = tied || (owners & (owners - 1));
        chosen = lane == slot ? id : chosen;
#pragma unroll
        for (u32 i = 0; i + 1 < N; i++) {
            sorted[i] = mine ? sorted[i + 1] : sorted[i];
            expert[i] = mine ? expert[i + 1] : expert[i];
        }
        sorted[N - 1] = mine ? 0 : sorted[N - 1];
    }
    return tied ? choose_with_ties(keys, n_slots) : chosen;
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
