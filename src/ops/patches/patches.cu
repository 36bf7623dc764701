// patches.cu - cuts pictures into patches, normalised by a table; see patches.h.
//
// Computes   out[r][c] = table[channel][pixel] for the patch of row r. Bound by memory.
//
//   row r:  | t0 | t1 | ... | t255 | t0 | ...     grid: rows; block: 256 threads, which take columns in turn
//
// No pipeline, no shared memory, no epilogue.
#include "device/cuda/kernel.cuh"
#include "ops/patches/patches_cuda.h"

extern "C" __global__ void __launch_bounds__(256) patches(const __grid_constant__ struct patches_params p)
{
    u32 row = blockIdx.x, patch = p.args.patch, n = 3 * patch * patch;

    wait_for_inputs();
    if (row >= p.step->n_rows)
        return;
    u32 position = step_positions(p.step)[row], y0 = position / p.args.n_across * patch,
        x0 = position % p.args.n_across * patch;
    const u8 *tile = p.pixels + (u64)step_slots(p.step)[row] * p.args.side * p.args.side * 3;
    f32 *out = p.out + (u64)row * n;
    bool beyond = position >= p.args.n_across * p.args.n_across;
    for (u32 c = threadIdx.x; c < n; c += blockDim.x) {
        u32 channel = c / (patch * patch), y = y0 + c / patch % patch, x = x0 + c % patch;
        out[c] = beyond ? 0.0f : p.table[channel * 256 + tile[(y * p.args.side + x) * 3 + channel]];
    }
}
