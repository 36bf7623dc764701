// activate.metal - the operation as defined in activate.h: a threadgroup takes a row.
#include "device/metal/msl.h"
#include "gemm/metal/activation.metalh"
#include "ops/activate/activate.h"

kernel void activate(constant struct activate_args &args [[buffer(0)]],
                     constant struct step &step [[buffer(1)]], device const f32 *gate [[buffer(2)]],
                     device const f32 *up [[buffer(3)]], device f32 *out [[buffer(4)]],
                     uint3 at [[threadgroup_position_in_grid]],
                     uint thread_index [[thread_index_in_threadgroup]],
                     uint3 n_threads [[threads_per_threadgroup]])
{
    u64 row = u64(at.x) * args.n_cols;

    if (at.x >= step.n_rows)
        return;
    for (u32 c = thread_index; c < args.n_cols; c += n_threads.x)
        out[row + c] = activation_of(args.activation, gate[row + c]) * (args.gated ? up[row + c] : 1.0f);
}
