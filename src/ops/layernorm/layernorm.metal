// layernorm.metal - the operation as defined in layernorm.h: a threadgroup takes a row.
#include "device/metal/msl.h"
#include "ops/layernorm/layernorm.h"

kernel void layernorm(constant struct layernorm_args &args [[buffer(0)]],
                      constant struct step &step [[buffer(1)]], device const f32 *in [[buffer(2)]],
                      device const f32 *scale [[buffer(3)]], device const f32 *bias [[buffer(4)]],
                      device f32 *out [[buffer(5)]], uint3 at [[threadgroup_position_in_grid]],
                      uint thread_index [[thread_index_in_threadgroup]],
                      uint3 n_threads [[threads_per_threadgroup]])
{
    threadgroup f32 room[32];
    f32 sum = 0.0f, squares = 0.0f;

    if (at.x >= n_rows_of(step, args.rows))
        return;
    in += u64(at.x) * args.n_cols;
    out += u64(at.x) * args.n_cols;
    for (u32 c = thread_index; c < args.n_cols; c += n_threads.x)
        sum += in[c];
    f32 mean = threadgroup_sum(sum, room, thread_index, n_threads.x) / f32(args.n_cols);
    for (u32 c = thread_index; c < args.n_cols; c += n_threads.x)
        squares += (in[c] - mean) * (in[c] - mean);
    f32 factor =
        norm_factor(threadgroup_sum(squares, room, thread_index, n_threads.x), args.n_cols, args.eps);
    for (u32 c = thread_index; c < args.n_cols; c += n_threads.x)
        out[c] = (in[c] - mean) * factor * scale[c] + bias[c];
}
