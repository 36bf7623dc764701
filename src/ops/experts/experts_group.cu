// experts_group.cu - entries by expert, for products of many rows: a block per expert counts the entries
// below and equal to it, and lists its own.
#include "ops/experts/experts.cuh"
#include "ops/experts/sum_before.cuh"

// Block e finds the entries of expert e, in order: how many belong to experts before it, and where its own
// lie. No block waits for another.
extern "C" __global__ void __launch_bounds__(EXPERTS_ROW_THREADS)
    experts_group(const __grid_constant__ struct experts_params p)
{
    __shared__ u32 room[EXPERTS_ROW_THREADS / 32];
    u32 n = experts_n_entries(p), share = (n + EXPERTS_ROW_THREADS - 1) / EXPERTS_ROW_THREADS;
    u32 begin = min(threadIdx.x * share, n), end = min(begin + share, n), below = 0, equal = 0, first, count;
    f32 expert = (f32)blockIdx.x;

    wait_for_inputs();
    for (u32 i = begin; i < end; i++) {
        below += p.ids[i] < expert;
        equal += p.ids[i] == expert;
    }
    sum_before(below, room, &first);
    u32 at = first + sum_before(equal, room, &count);
    for (u32 i = begin; i < end; i++)
        if (p.ids[i] == expert)
            p.entries[at++] = i;
    if (threadIdx.x == 0) {
        p.first[blockIdx.x] = first;
        if (blockIdx.x == p.n_experts - 1)
            p.first[p.n_experts] = n;
    }
}
