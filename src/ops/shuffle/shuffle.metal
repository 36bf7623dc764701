// shuffle.metal - the operation as defined in shuffle.h: a threadgroup takes an output row.
#include "device/metal/msl.h"
#include "ops/shuffle/shuffle.h"

kernel void shuffle(constant struct shuffle_args &args [[buffer(0)]],
                    constant struct step &step [[buffer(1)]], device const f32 *in [[buffer(2)]],
                    device f32 *out [[buffer(3)]], uint3 at [[threadgroup_position_in_grid]],
                    uint thread_index [[thread_index_in_threadgroup]],
                    uint3 n_threads [[threads_per_threadgroup]])
{
    u32 n = args.side * args.side * args.n_cols;

    if (at.x >= step.n_outputs)
        return;
    u32 corner = step_outputs(&step)[at.x];
    out += u64(at.x) * n;
    for (u32 c = thread_index; c < n; c += n_threads.x) {
        u32 i = c / args.n_cols, row = corner + i / args.side * args.n_across + i % args.side;
        out[c] = in[u64(row) * args.n_cols + c % args.n_cols];
    }
}
