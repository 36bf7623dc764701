// lora.metal - the operation as defined in lora.h, in two dispatches: h, of which a simdgroup takes a rank of
// a row, then what it adds, of which a thread takes a column of a row.
#include "device/metal/msl.h"
#include "ops/lora/lora.h"

inline u32 first_rank(constant struct lora_args &args, u32 target)
{
    return (target > 0 ? args.n_ranks[0] : 0) + (target > 1 ? args.n_ranks[1] : 0);
}

inline u32 n_ranks_of_all(constant struct lora_args &args)
{
    return args.n_ranks[0] + args.n_ranks[1] + args.n_ranks[2];
}

kernel void lora_down(constant struct lora_args &args [[buffer(0)]], constant struct step &step [[buffer(1)]],
                      device const f32 *in [[buffer(2)]], device const f32 *scales [[buffer(3)]],
                      device f32 *work [[buffer(4)]], device const f32 *a_0 [[buffer(5)]],
                      device const u32 *owners_0 [[buffer(7)]], device const f32 *a_1 [[buffer(9)]],
                      device const u32 *owners_1 [[buffer(11)]], device const f32 *a_2 [[buffer(13)]],
                      device const u32 *owners_2 [[buffer(15)]], uint3 at [[threadgroup_position_in_grid]],
                      uint thread_index [[thread_index_in_threadgroup]])
{
    u32 r = at.y, target = at.z, lane = thread_index % 32, j = at.x * 4 + thread_index / 32;

    if (r >= n_rows_of(step, args.rows) || j >= args.n_ranks[target])
        return;
    u32 row = args.rows == ROWS_STEP ? r : step_outputs(&step)[r];
    device const u32 *owners = target == 0 ? owners_0 : target == 1 ? owners_1 : owners_2;
    device const f32 *a = target == 0 ? a_0 : target == 1 ? a_1 : a_2;
    f32 scale = scales[u64(step_slots(&step)[row]) * args.n_adapters + owners[j]], sum = 0.0f;
    in += u64(r) * args.n_cols;
    a += u64(j) * args.n_cols;
    for (u32 k = lane; k < args.n_cols && scale != 0.0f; k += 32)
        sum += in[k] * a[k];
    sum = simd_sum(sum);
    if (lane == 0)
        work[u64(r) * n_ranks_of_all(args) + first_rank(args, target) + j] =
            scale != 0.0f ? scale * sum : 0.0f;
}

kernel void lora_up(constant struct lora_args &args [[buffer(0)]], constant struct step &step [[buffer(1)]],
                    device const f32 *work [[buffer(4)]], device const f32 *b_0 [[buffer(6)]],
                    device f32 *out_0 [[buffer(8)]], device const f32 *b_1 [[buffer(10)]],
                    device f32 *out_1 [[buffer(12)]], device const f32 *b_2 [[buffer(14)]],
                    device f32 *out_2 [[buffer(16)]], uint3 at [[threadgroup_position_in_grid]],
                    uint thread_index [[thread_index_in_threadgroup]])
{
    u32 r = at.y, target = at.z, n = args.n_out[target], c = at.x * 256 + thread_index;

    if (r >= n_rows_of(step, args.rows) || c >= n)
        return;
    device const f32 *b = target == 0 ? b_0 : target == 1 ? b_1 : b_2;
    device f32 *out = target == 0 ? out_0 : target == 1 ? out_1 : out_2;
    work += u64(r) * n_ranks_of_all(args) + first_rank(args, target);
    f32 sum = out[u64(r) * n + c];
    for (u32 j = 0; j < args.n_ranks[target]; j++)
        if (work[j] != 0.0f)
            sum += work[j] * b[u64(j) * n + c];
    out[u64(r) * n + c] = sum;
}
