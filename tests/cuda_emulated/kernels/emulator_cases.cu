// emulator_cases.cu - kernels for the emulator's own test: some that are right, and some with one fault each.
// No task of the engine's, one block of a few warps, no pipeline.
#include "device/cuda/kernel.cuh"

struct case_kernel_params {
    const struct step *step;
    u32 *out;
    u32 n;
};
#define CASE(name) extern "C" __global__ void name(const __grid_constant__ struct case_kernel_params p)

// ---- right
CASE(right_sums_of_a_block)
{
    __shared__ f32 room[33];
    f32 sum = block_sum((f32)threadIdx.x, room);
    if (threadIdx.x < p.n)
        p.out[threadIdx.x] = (u32)sum;
}
CASE(right_warp_functions)
{
    u32 lane = threadIdx.x & 31, v = lane * lane, group = __match_any_sync(~0u, lane % 5);
    u32 r = __shfl_down_sync(~0u, v, 1) + __shfl_up_sync(~0u, v, 2) + __shfl_sync(~0u, v, 7) + __popc(group);
    r +=
        __ballot_sync(~0u, lane % 3 == 0) + (u32)__any_sync(~0u, lane == 4) + (u32)__all_sync(~0u, lane < 31);
    if (lane < 8) // these eight alone
        r += __reduce_add_sync(0xffu, lane) + __shfl_xor_sync(0xffu, v, 4);
    else
        r += __reduce_max_sync(~0xffu, lane);
    p.out[threadIdx.x] = r;
}
CASE(right_counters)
{
    __shared__ u32 count;
    if (threadIdx.x == 0)
        count = 0;
    __syncthreads();
    atomicAdd(&count, threadIdx.x);
    __syncthreads();
    u32 n_odd = (u32)__syncthreads_count(threadIdx.x % 2);
    if (threadIdx.x < p.n)
        p.out[threadIdx.x] = count + n_odd;
}

// ---- wrong
CASE(wrong_barrier_not_reached)
{
    if (threadIdx.x < 40)
        __syncthreads();
    p.out[0] = 1;
}
CASE(wrong_barriers_differ)
{
    if (threadIdx.x < 32) {
        __syncthreads();
        p.out[1] = 1;
    } else {
        __syncthreads();
        p.out[2] = 2;
    }
}
CASE(wrong_lanes_do_not_come)
{
    if ((threadIdx.x & 31) < 16)
        p.out[threadIdx.x] = __shfl_xor_sync(~0u, threadIdx.x, 1);
    else
        __syncthreads();
}
CASE(wrong_lane_outside_of_its_mask)
{
    p.out[threadIdx.x] = __ballot_sync(0xffffu, 1);
}
CASE(wrong_shuffle_from_an_absent_lane)
{
    if ((threadIdx.x & 31) < 16)
        p.out[threadIdx.x] = __shfl_sync(0xffffu, threadIdx.x, 20);
}
CASE(wrong_read_beyond_a_buffer)
{
    p.out[0] = p.out[p.n + threadIdx.x];
}
CASE(wrong_write_beyond_a_buffer)
{
    p.out[p.n + threadIdx.x] = 1;
}
CASE(wrong_write_to_no_buffer)
{
    *(u32 *)(u64)(64 + 4 * threadIdx.x) = 1;
}
CASE(wrong_read_of_unwritten_shared_memory)
{
    __shared__ u32 room[64];
    if (threadIdx.x % 2)
        room[threadIdx.x] = 1;
    __syncthreads();
    p.out[threadIdx.x] = room[threadIdx.x];
}
CASE(wrong_index_of_a_shared_array)
{
    __shared__ u32 room[32], behind[32];
    room[threadIdx.x] = 1;
    behind[threadIdx.x / 2] = 1;
    p.out[threadIdx.x] = room[threadIdx.x / 2] + behind[threadIdx.x / 2];
}
CASE(wrong_dynamic_shared_memory)
{
    extern __shared__ f32 heads[];
    heads[threadIdx.x] = 1; // the launch gives none
    p.out[threadIdx.x] = (u32)heads[threadIdx.x];
}
CASE(wrong_race_in_a_block)
{
    __shared__ u32 room[64];
    room[threadIdx.x] = threadIdx.x;
    p.out[threadIdx.x] = room[63 - threadIdx.x];
}
CASE(wrong_race_in_a_warp)
{
    __shared__ u32 room[64];
    room[threadIdx.x] = threadIdx.x;
    __ballot_sync(~0u, 1); // no order of memory
    p.out[threadIdx.x] = room[threadIdx.x ^ 1];
}
CASE(right_order_in_a_warp)
{
    __shared__ u32 room[64];
    room[threadIdx.x] = threadIdx.x;
    __syncwarp();
    p.out[threadIdx.x] = room[threadIdx.x ^ 1];
}
CASE(wrong_race_of_an_atomic)
{
    __shared__ u32 count;
    if (threadIdx.x == 0)
        count = 0;
    atomicAdd(&count, 1);
    __syncthreads();
    p.out[threadIdx.x] = count;
}
CASE(wrong_race_in_global_memory)
{
    p.out[threadIdx.x / 2] = threadIdx.x;
}
CASE(wrong_order_of_reads_and_writes)
{
    u32 v = p.out[(threadIdx.x + 1) % 64];
    p.out[threadIdx.x] = v + 1;
}
CASE(wrong_misaligned_vector)
{
    if (threadIdx.x == 0)
        p.out[0] = ((const uint4 *)(p.out + 1))->x;
}
