// scale_add.metal - the operation as defined in scale_add.h: a threadgroup takes a row.
#include "device/metal/msl.h"
#include "ops/scale_add/scale_add.h"

kernel void scale_add(constant struct scale_add_args &args [[buffer(0)]],
                      constant struct step &step [[buffer(1)]], device const f32 *in [[buffer(2)]],
                      device const f32 *scale [[buffer(3)]], device const f32 *add [[buffer(4)]],
                      device f32 *out [[buffer(5)]], uint3 at [[threadgroup_position_in_grid]],
                      uint thread_index [[thread_index_in_threadgroup]],
                      uint3 n_threads [[threads_per_threadgroup]])
{
    u64 row = u64(at.x) * args.n_cols;

    if (at.x >= step.n_rows)
        return;
    for (u32 c = thread_index; c < args.n_cols; c += n_threads.x)
        out[row + c] = in[row + c] * scale[c] + add[row + c];
}
