// experts_rows.cu - the kernels around the experts' products: pack rows, group entries by expert, add the
// slots.
//
//   experts_pack_int8  a block per row: int8 with a scale for each 32 columns
//   experts_pack_bf16  a block per row: bf16, as experts_many reads it
//   experts_group      a block per expert: counts the entries below and equal to it, and lists its own
//   experts_sum        a thread per column of a row: slots in their order, the shared expert, then add
//
// Bound by memory; no pipelines and no tiles.
#include "gemm/cuda/fragments.cuh"
#include "ops/experts/experts_pack.cuh"

// A block takes a row.
extern "C" __global__ void __launch_bounds__(EXPERTS_ROW_THREADS)
    experts_pack_int8(const __grid_constant__ struct experts_params p)
{
    wait_for_inputs();
    experts_quantise(p, blockIdx.x, p.packed);
}

// The same as bf16: of each 128 columns [quarter][block of 32] 16 bytes, steps 2 q and 2 q + 1 for the lanes
// of that block; zeros behind the last column.
extern "C" __global__ void __launch_bounds__(EXPERTS_ROW_THREADS)
    experts_pack_bf16(const __grid_constant__ struct experts_params p)
{
    const f32 *from = experts_row_to_pack(p, blockIdx.x);
    uint4 *to = (uint4 *)(p.packed + (u64)blockIdx.x * p.packed_stride);

    wait_for_inputs();
    for (u32 i = threadIdx.x; from && i < p.packed_stride / 16; i += EXPERTS_ROW_THREADS) {
        u32 block = i / 16 * 4 + i % 4, quarter = i % 16 / 4;
        uint4 word = make_uint4(0, 0, 0, 0);
        if (block < p.n_cols / 32) {
            float4 a = experts_four(from + block * 32 + quarter * 4),
                   b = experts_four(from + block * 32 + quarter * 4 + 16);
            word = make_uint4(two_bf16(a.x, a.z), two_bf16(a.y, a.w), two_bf16(b.x, b.z), two_bf16(b.y, b.w));
        }
        to[i] = word;
    }
}

// Sums over the threads before this one; all: over the block.
static __device__ __forceinline__ u32 sum_before(u32 v, u32 *room, u32 *all)
{
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, sum = v, before = 0;

#pragma unroll
    for (u32 o = 1; o < 32; o *= 2) {
        u32 other = __shfl_up_sync(~0u, sum, o);
        sum += lane >= o ? other : 0;
    }
    if (lane == 31)
        room[warp] = sum;
    __syncthreads();
    *all = 0;
    for (u32 i = 0; i < EXPERTS_ROW_THREADS / 32; i++) {
        before += i < warp ? room[i] : 0;
        *all += room[i];
    }
    __syncthreads();
    return before + sum - v;
}

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

// out = add, if any, + the slots in their order, then the shared expert. A thread takes a column of a row.
extern "C" __global__ void __launch_bounds__(EXPERTS_ROW_THREADS)
    experts_sum(const __grid_constant__ struct experts_sum_params p)
{
    u32 row = blockIdx.y, column = blockIdx.x * EXPERTS_ROW_THREADS + threadIdx.x,
        n = p.n_slots + p.has_shared;

    wait_for_inputs();
    if (row >= p.step->n_rows || column >= p.n_cols)
        return;
    const f32 *part = p.parts + (u64)row * n * p.n_cols + column,
              *weights = p.weights + (u64)row * (p.n_slots + 1);
    u64 at = (u64)row * p.n_cols + column;
    f32 sum = 0;
    for (u32 j = 0; j < n; j++)
        sum += weights[j] * part[(u64)j * p.n_cols];
    p.out[at] = (p.add ? p.add[at] : 0) + sum;
}
