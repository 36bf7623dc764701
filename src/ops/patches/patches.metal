// patches.metal - the operation as defined in patches.h: a threadgroup takes a row.
#include "device/metal/msl.h"
#include "ops/patches/patches.h"

kernel void patches(constant struct patches_args &args [[buffer(0)]],
                    constant struct step &step [[buffer(1)]], device const uchar *pixels [[buffer(2)]],
                    device const f32 *table [[buffer(3)]], device f32 *out [[buffer(4)]],
                    uint3 at [[threadgroup_position_in_grid]],
                    uint thread_index [[thread_index_in_threadgroup]],
                    uint3 n_threads [[threads_per_threadgroup]])
{
    u32 p = args.patch, n = 3 * p * p;

    if (at.x >= step.n_rows)
        return;
    u32 position = step_positions(&step)[at.x], y0 = position / args.n_across * p,
        x0 = position % args.n_across * p;
    pixels += u64(step_slots(&step)[at.x]) * args.side * args.side * 3;
    out += u64(at.x) * args.n_cols;
    bool beyond = position >= args.n_across * args.n_across;
    for (u32 c = thread_index; c < args.n_cols; c += n_threads.x) {
        u32 channel = c / (p * p), y = y0 + c / p % p, x = x0 + c % p;
        out[c] = beyond || c >= n ? 0.0f : table[channel * 256 + pixels[(y * args.side + x) * 3 + channel]];
    }
}
