// activate.metal - the operation as defined in activate.h: a threadgroup takes a row.
#include "device/metal/msl.h"
#include "gemm/metal/activation.metalh"
#include "ops/activate/activate.h"

inline f32 activated(constant struct activate_args &a, f32 x)
{
    if (a.activation != ACTIVATION_CAP)
        return activation_of(a.activation, x);
    f32 z = clamp(x / a.limit, -15.0f, 15.0f); // tanh(z) = 1 - 2 / (1 + exp(2 z))
    return a.limit * (1.0f - 2.0f / (1.0f + precise::exp(2.0f * z)));
}

kernel void activate(constant struct activate_args &args [[buffer(0)]],
                     constant struct step &step [[buffer(1)]], device const f32 *gate [[buffer(2)]],
                     device const f32 *up [[buffer(3)]], device f32 *out [[buffer(4)]],
                     uint3 at [[threadgroup_position_in_grid]],
                     uint thread_index [[thread_index_in_threadgroup]],
                     uint3 n_threads [[threads_per_threadgroup]])
{
    u64 row = u64(at.x) * args.n_cols, wide = u64(at.x) * args.up_cols + args.up_first;

    if (at.x >= n_rows_of(step, args.rows))
        return;
    for (u32 c = thread_index; c < args.n_cols; c += n_threads.x)
        out[row + c] = activated(args, gate[row + c]) * (args.gated ? up[wide + c] : 1.0f);
}
