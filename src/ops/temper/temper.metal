// temper.metal - the operation as defined in temper.h: a threadgroup takes a row.
#include "device/metal/msl.h"
#include "ops/temper/temper.h"

kernel void temper(constant struct temper_args &args [[buffer(0)]], constant struct step &step [[buffer(1)]],
                   device const f32 *in [[buffer(2)]], device f32 *out [[buffer(3)]],
                   uint3 at [[threadgroup_position_in_grid]],
                   uint thread_index [[thread_index_in_threadgroup]],
                   uint3 n_threads [[threads_per_threadgroup]])
{
    u64 row = u64(at.x) * args.n_cols;

    if (at.x >= step.n_rows)
        return;
    f32 factor = 1.0f + args.beta * precise::log(1.0f + f32(step_positions(&step)[at.x] / args.period));
    for (u32 c = thread_index; c < args.n_cols; c += n_threads.x)
        out[row + c] = in[row + c] * factor;
}
