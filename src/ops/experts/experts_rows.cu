// experts_rows.cu - the kernels around the experts' products: pack rows, add the slots. experts_group.cu
// groups entries by expert.
//
//   experts_pack_int8  a block per row: int8 with a scale for each 32 columns
//   experts_pack_bf16  a block per row: bf16, as experts_many reads it
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
