// scatter.metal - the operation as defined in scatter.h: a threadgroup takes an output row.
#include "device/metal/msl.h"
#include "ops/scatter/scatter.h"

kernel void scatter(constant struct scatter_args &args [[buffer(0)]],
                    constant struct step &step [[buffer(1)]], device const f32 *in [[buffer(2)]],
                    device const u32 *places [[buffer(3)]], device f32 *pool [[buffer(4)]],
                    uint3 at [[threadgroup_position_in_grid]],
                    uint thread_index [[thread_index_in_threadgroup]],
                    uint3 n_threads [[threads_per_threadgroup]])
{
    if (at.x >= step.n_outputs || places[at.x] >= args.n_rows)
        return;
    in += u64(at.x) * args.n_cols;
    pool += u64(places[at.x]) * args.n_cols;
    for (u32 c = thread_index; c < args.n_cols; c += n_threads.x)
        pool[c] = in[c];
}
