// angles.metal - the operation as defined in angles.h: a threadgroup takes a row.
//
// An angle may be as large as the position, far beyond what the fast sine and cosine can reduce: the precise
// ones are named.
#include "device/metal/msl.h"
#include "ops/angles/angles.h"

kernel void angles(constant struct angles_args &args [[buffer(0)]], constant struct step &step [[buffer(1)]],
                   device const f32 *frequencies [[buffer(2)]], device f32 *out [[buffer(3)]],
                   uint3 at [[threadgroup_position_in_grid]],
                   uint thread_index [[thread_index_in_threadgroup]],
                   uint3 n_threads [[threads_per_threadgroup]])
{
    if (at.x >= step.n_rows)
        return;
    out += u64(at.x) * 2 * args.n_pairs;
    for (u32 i = thread_index; i < args.n_pairs; i += n_threads.x) {
        f32 angle = f32(step_positions(&step)[at.x]) * frequencies[i];
        out[2 * i] = precise::cos(angle) * args.scale;
        out[2 * i + 1] = precise::sin(angle) * args.scale;
    }
}
