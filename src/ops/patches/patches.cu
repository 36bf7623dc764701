// patches.cu - cuts pictures into patches, normalised by a table; see patches.h.
//
// Computes   out[r][c] = table[channel][pixel] for the patch of row r. Bound by memory.
//
//   row r:  | t0 | t1 | ... | t255 | t0 | ...     grid: rows; block: 256 threads, which take pixels in turn
//
// No pipeline, no shared memory, no epilogue.
#include "device/cuda/kernel.cuh"
#include "gemm/cuda/epilogue_pack.cuh"
#include "ops/patches/patches_cuda.h"

extern "C" __global__ void __launch_bounds__(256) patches(const __grid_constant__ struct patches_params p)
{
    u32 row = blockIdx.x, patch = p.args.patch, n = patch * patch;

    wait_for_inputs();
    if (row >= p.step->n_rows)
        return;
    u32 position = step_positions(p.step)[row], y0 = position / p.args.n_across * patch,
        x0 = position % p.args.n_across * patch;
    const u8 *tile = p.pixels + (u64)step_slots(p.step)[row] * p.args.side * p.args.side * 3;
    bool beyond = position >= p.args.n_across * p.args.n_across;
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) {
        const u8 *pixel = tile + ((y0 + i / patch) * p.args.side + x0 + i % patch) * 3;
#pragma unroll
        for (u32 channel = 0; channel < 3; channel++) {
            f32 v = beyond ? 0.0f : p.table[channel * 256 + pixel[channel]];
            if (p.out)
                p.out[((u64)row * 3 + channel) * n + i] = v;
            if (p.packed_out.at)
                pack_put(p.packed_out, row, channel * n + i, v);
        }
    }
}
