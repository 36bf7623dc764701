// trellis.metal - the operation as defined in trellis.h, in two dispatches: rows turned into the workspace,
// of which a simdgroup takes 128 numbers, and the product (trellis_metal.h). A block of outputs and rows
// decodes its codes by itself, so many rows decode them once for every eight.
#include "ops/trellis/trellis.h"
#include "ops/trellis/trellis.metalh"

constant u32 TRELLIS_BITS [[function_constant(0)]];
constant u32 TRELLIS_CODEBOOK [[function_constant(1)]];
constant u32 TRELLIS_BIAS [[function_constant(2)]];
constant u32 TRELLIS_ADD [[function_constant(3)]];

inline device const half *suh_of(constant struct trellis_args &args, device const uchar *w)
{
    return (device const half *)(w + exl3_codes_bytes(exl3_padded(args.n_cols), exl3_padded(args.n_rows),
                                                      TRELLIS_BITS));
}

// Grid: blocks of 128 columns, eight a threadgroup; rows.
kernel void trellis_turn_rows(constant struct trellis_args &args [[buffer(0)]],
                              constant struct step &step [[buffer(1)]], device const f32 *in [[buffer(2)]],
                              device const uchar *w [[buffer(3)]], device f32 *work [[buffer(6)]],
                              uint3 at [[threadgroup_position_in_grid]],
                              uint thread_index [[thread_index_in_threadgroup]])
{
    u32 n_in = exl3_padded(args.n_cols), first = (at.x * TRELLIS_MSL_TURNS + thread_index / 32) * EXL3_BLOCK,
        lane = thread_index % 32;

    if (at.y >= n_rows_of(step, args.rows) || first >= n_in)
        return;
    float4 v = trellis_scaled(in + u64(at.y) * args.n_cols, suh_of(args, w), first + 4 * lane, args.n_cols);
    trellis_store(work + u64(at.y) * n_in + first, trellis_turn(v, lane), lane);
}

// Eight rows, or of a step of one row that one.
template <u32 N>
static void multiply(constant struct trellis_args &args, device const uchar *w, device const f32 *work, u32 n,
                     uint3 at, u32 thread_index, threadgroup f32 *found)
{
    u32 n_in = exl3_padded(args.n_cols), n_out = exl3_padded(args.n_rows);
    device const f32 *rows[N];
    float2 sums[N];

    UNROLL for (u32 r = 0; r < N; r++) // a row that does not exist is the first one again
    {
        rows[r] = work + u64(at.y * N + (r < n ? r : 0)) * n_in;
    }
    struct trellis_columns c =
        trellis_columns_of(w, n_in, n_out, at.x, TRELLIS_BITS, TRELLIS_CODEBOOK, thread_index);
    trellis_multiply<N>(c, rows, thread_index % 32, sums);
    trellis_found<N>(sums, thread_index, found);
}

static void finish(constant struct trellis_args &args, device const uchar *w, device const f32 *bias,
                   device const f32 *add, device f32 *out, u32 row, u32 first, float4 v)
{
    device const half *svh = suh_of(args, w) + exl3_padded(args.n_cols);

    UNROLL for (u32 i = 0; i < 4; i++)
    {
        u64 place = u64(row) * args.n_rows + first + i;
        f32 sum = v[i] * f32(svh[first + i]);
        if (first + i < args.n_rows) {
            sum += TRELLIS_BIAS ? bias[first + i] : 0.0f;
            out[place] = TRELLIS_ADD ? sum + add[place] : sum;
        }
    }
}

#define TRELLIS_PRODUCT(name, N)                                                                    \
    kernel void name(constant struct trellis_args &args [[buffer(0)]],                              \
                     constant struct step &step [[buffer(1)]], device const uchar *w [[buffer(3)]], \
                     device const f32 *bias [[buffer(4)]], device const f32 *add [[buffer(5)]],     \
                     device const f32 *work [[buffer(6)]], device f32 *out [[buffer(7)]],           \
                     uint3 at [[threadgroup_position_in_grid]],                                     \
                     uint thread_index [[thread_index_in_threadgroup]])                             \
    {                                                                                               \
        threadgroup f32 found[TRELLIS_MSL_SUMS];                                                    \
        u32 n_rows = n_rows_of(step, args.rows), first = at.y * N, lane = thread_index % 32,        \
            r = thread_index / 32;                                                                  \
        if (first >= n_rows)                                                                        \
            return;                                                                                 \
        u32 n = min(u32(N), n_rows - first);                                                        \
        multiply<N>(args, w, work, n, at, thread_index, found);                                     \
        threadgroup_barrier(mem_flags::mem_threadgroup);                                            \
        if (r < n)                                                                                  \
            finish(args, w, bias, add, out, first + r, at.x * EXL3_BLOCK + 4 * lane,                \
                   trellis_turn(trellis_sum<N>(found, r, lane), lane));                             \
    }
// Grid: blocks of 128 outputs, groups of rows.
TRELLIS_PRODUCT(trellis_one, 1)
TRELLIS_PRODUCT(trellis_eight, TRELLIS_MSL_ROWS)
