// gated_norm.metal - the operation as defined in gated_norm.h: a simdgroup takes a group of a row, four to a
// threadgroup.
#include "device/metal/msl.h"
#include "ops/gated_norm/gated_norm.h"

constant u32 HAS_SCALE [[function_constant(0)]];

inline f32 gate_of(f32 z, u32 flags)
{
    return (flags & GATED_SIGMOID ? 1.0f : z) / (1.0f + exp(-z));
}

kernel void gated_norm(constant struct gated_norm_args &args [[buffer(0)]],
                       constant struct step &step [[buffer(1)]], device const f32 *in [[buffer(2)]],
                       device const f32 *z [[buffer(3)]], device const f32 *scale [[buffer(4)]],
                       device f32 *out [[buffer(5)]], uint3 tile [[threadgroup_position_in_grid]],
                       uint thread_index [[thread_index_in_threadgroup]])
{
    u32 row = tile.y, group = tile.x * 4 + thread_index / 32, lane = thread_index % 32, n = args.n;

    if (row >= step.n_rows || group >= args.n_groups)
        return;
    u64 at = (u64(row) * args.n_groups + group) * n;
    z += u64(row) * args.z_cols + args.z_at + group * n;
    f32 squares = 0.0f, factor = 1.0f;
    if (HAS_SCALE) {
        for (u32 c = lane; c < n; c += 32) {
            f32 x = args.flags & GATED_FIRST ? in[at + c] * gate_of(z[c], args.flags) : in[at + c];
            squares += x * x;
        }
        factor = norm_factor(simd_sum(squares), n, args.eps);
    }
    for (u32 c = lane; c < n; c += 32) {
        f32 x = in[at + c] * gate_of(z[c], args.flags) * factor;
        if (HAS_SCALE)
            x *= scale[group * args.scale_step + c];
        out[at + c] = x;
    }
}
