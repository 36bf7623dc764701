// select.metal - the operation as defined in select.h: a threadgroup copies a row.
#include "device/metal/msl.h"
#include "ops/select/select.h"

kernel void select_rows(constant struct select_args &args [[buffer(0)]],
                        constant struct step &step [[buffer(1)]], device const f32 *in [[buffer(2)]],
                        device f32 *out [[buffer(3)]], uint3 at [[threadgroup_position_in_grid]],
                        uint thread_index [[thread_index_in_threadgroup]],
                        uint3 n_threads [[threads_per_threadgroup]])
{
    if (at.x >= step.n_outputs)
        return;
    in += u64(step_outputs(&step)[at.x]) * args.n_cols;
    out += u64(at.x) * args.n_cols;
    for (u32 c = thread_index; c < args.n_cols; c += n_threads.x)
        out[c] = in[c];
}
