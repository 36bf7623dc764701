// rmsnorm.metal - the operation as defined in rmsnorm.h: a threadgroup takes a group of a row.
#include "device/metal/msl.h"
#include "ops/rmsnorm/rmsnorm.h"

constant u32 HAS_SCALE [[function_constant(0)]];
constant u32 HAS_ADD [[function_constant(1)]];

kernel void rmsnorm(constant struct rmsnorm_args &args [[buffer(0)]],
                    constant struct step &step [[buffer(1)]], device const f32 *in [[buffer(2)]],
                    device const f32 *scale [[buffer(3)]], device const f32 *add [[buffer(4)]],
                    device f32 *out [[buffer(5)]], uint3 tile [[threadgroup_position_in_grid]],
                    uint thread_index [[thread_index_in_threadgroup]],
                    uint3 n_threads [[threads_per_threadgroup]])
{
    threadgroup f32 room[32];
    u32 row = tile.x;
    f32 squares = 0.0f;

    if (row >= n_rows_of(step, args.rows))
        return;
    u64 at = (u64(row) * args.n_groups + tile.y) * args.n_cols;
    in += at;
    out += at;
    for (u32 c = thread_index; c < args.n_cols; c += n_threads.x)
        squares += in[c] * in[c];
    f32 factor =
        norm_factor(threadgroup_sum(squares, room, thread_index, n_threads.x), args.n_cols, args.eps);
    for (u32 c = thread_index; c < args.n_cols; c += n_threads.x) {
        f32 x = in[c] * factor;
        if (HAS_SCALE)
            x *= scale[c];
        if (HAS_ADD)
            x += add[at + c];
        out[c] = x * args.gain;
    }
}
