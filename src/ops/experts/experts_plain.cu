// experts_plain.cu - products with experts in fp32, every format and width.
//
// Computes the tasks of experts_cuda.h, entry by entry. For F32 weights, `exact`, widths that are no multiple
// of 32, and gate and up in different formats. Correct before fast: both weight rows are read again for every
// entry.
//
//            columns, one a lane in turn
//   pair 0  | l0 | l1 | ... | l31 | l0 | ...     a warp per pair; grid: (pairs / warps, entries)
//   pair 1  | l0 | l1 | ...
//
// No pipeline. The order of a sum depends on n_cols and the format alone. Epilogue: from registers.
#include "gemm/cuda/row_plain.cuh"
#include "ops/experts/experts.cuh"

extern "C" __global__ void __launch_bounds__(EXPERTS_ROW_THREADS)
    experts_plain(const __grid_constant__ struct experts_params p)
{
    struct lane_span s = { threadIdx.x % 32, 32 };
    u32 pair = blockIdx.x * (EXPERTS_ROW_THREADS / 32) + threadIdx.x / 32, n_entries = experts_n_entries(p);

    wait_for_inputs();
    if (pair >= p.n_pairs)
        return;
    for (u32 entry = blockIdx.y; entry < n_entries; entry += gridDim.y) {
        const f32 *x = p.in + (u64)(entry / p.n_slots) * p.in_stride + entry % p.n_slots * p.slot_stride;
        struct experts_task t = experts_task_of(p, p.ids ? (u32)p.ids[entry] : 0, pair);
        f32 first = warp_sum(dot_row_any(p.w[0], t.row[0], x, s)),
            second = warp_sum(dot_row_any(p.w[1], t.row[1], x, s));
        if (s.lane == 0)
            experts_store(p, t, entry, make_float2(first, second));
    }
}
