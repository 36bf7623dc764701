// rmsnorm.metal - the operation as defined in rmsnorm.h: a threadgroup takes a row.
#include "device/metal/msl.h"
#include "ops/rmsnorm/rmsnorm.h"

kernel void rmsnorm(constant struct rmsnorm_args &args [[buffer(0)]],
                    constant struct step &step [[buffer(1)]], device const f32 *in [[buffer(2)]],
                    device const f32 *scale [[buffer(3)]], device f32 *out [[buffer(4)]],
                    uint3 tile [[threadgroup_position_in_grid]],
                    uint thread_index [[thread_index_in_threadgroup]],
                    uint3 n_threads [[threads_per_threadgroup]])
{
    threadgroup f32 room[32];
    u32 row = tile.x;
    f32 squares = 0.0f;

    if (row >= n_rows_of(step, args.rows))
        return;
    in += u64(row) * args.n_cols;
    out += u64(row) * args.n_cols;
    for (u32 c = thread_index; c < args.n_cols; c += n_threads.x)
        squares += in[c] * in[c];
    f32 factor =
        norm_factor(threadgroup_sum(squares, room, thread_index, n_threads.x), args.n_cols, args.eps);
    for (u32 c = thread_index; c < args.n_cols; c += n_threads.x)
        out[c] = in[c] * factor * scale[c];
}
