// trellis.metal - the operation as defined in trellis.h, in two dispatches a matrix: rows turned into the
// workspace, of which a simdgroup takes 128 numbers, and the product (trellis_metal.h). A block of outputs
// and rows decodes its codes by itself, so many rows decode them once for every eight.
#include "ops/trellis/trellis.h"
#include "ops/trellis/trellis.metalh"

constant u32 TRELLIS_BITS [[function_constant(0)]];
constant u32 TRELLIS_CODEBOOK [[function_constant(1)]];
constant u32 TRELLIS_BIASED [[function_constant(2)]];
constant u32 TRELLIS_ADDS [[function_constant(3)]];

// One of the command's matrices.
struct trellis_codes {
    device const uchar *codes;
    device const half *suh, *svh;
    u32 n_in, n_out, n_rows; // n_rows: without the padding
};

static struct trellis_codes matrix_of(constant struct trellis_args &args, u32 i, device const uchar *w)
{
    struct trellis_codes m;

    m.n_rows = args.n_rows[i];
    m.n_in = exl3_padded(args.n_cols);
    m.n_out = exl3_padded(m.n_rows);
    m.codes = w;
    m.suh = (device const half *)(w + exl3_codes_bytes(m.n_in, m.n_out, TRELLIS_BITS));
    m.svh = m.suh + m.n_in;
    return m;
}

static void turn(constant struct trellis_args &args, thread const struct trellis_codes &m,
                 device const f32 *in, device f32 *work, u32 row, u32 first, u32 lane)
{
    float4 v = trellis_scaled(in + u64(row) * args.n_cols, m.suh, first + 4 * lane, args.n_cols);

    trellis_store(work + u64(row) * m.n_in + first, trellis_turn(v, lane), lane);
}

// Eight rows, or of a step of one row that one.
template <u32 N>
static void multiply(thread const struct trellis_codes &m, device const f32 *work, u32 n, uint3 at,
                     u32 thread_index, threadgroup f32 *found)
{
    device const f32 *rows[N];
    float2 sums[N];

    UNROLL for (u32 r = 0; r < N; r++) // a row that does not exist is the first one again
    {
        rows[r] = work + u64(at.y * N + (r < n ? r : 0)) * m.n_in;
    }
    struct trellis_columns c =
        trellis_columns_of(m.codes, m.n_in, m.n_out, at.x, TRELLIS_BITS, TRELLIS_CODEBOOK, thread_index);
    trellis_multiply<N>(c, rows, thread_index % 32, sums);
    trellis_found<N>(sums, thread_index, found);
}

static void finish(thread const struct trellis_codes &m, device const f32 *bias, device const f32 *add,
                   device f32 *out, u32 row, u32 first, float4 v)
{
    UNROLL for (u32 i = 0; i < 4; i++)
    {
        u64 place = u64(row) * m.n_rows + first + i;
        if (first + i < m.n_rows) {
            f32 sum = v[i] * f32(m.svh[first + i]);
            sum += TRELLIS_BIASED ? bias[first + i] : 0.0f;
            out[place] = TRELLIS_ADDS ? sum + add[place] : sum;
        }
    }
}

// Grid: blocks of 128 columns, eight a threadgroup; rows. W, WORK: the matrix's buffers.
#define TRELLIS_TURN(name, matrix, W, WORK)                                                        \
    kernel void name(constant struct trellis_args &args [[buffer(0)]],                             \
                     constant struct step &step [[buffer(1)]], device const f32 *in [[buffer(2)]], \
                     device const uchar *w [[buffer(W)]], device f32 *work [[buffer(WORK)]],       \
                     uint3 at [[threadgroup_position_in_grid]],                                    \
                     uint thread_index [[thread_index_in_threadgroup]])                            \
    {                                                                                              \
        u32 first = (at.x * TRELLIS_MSL_TURNS + thread_index / 32) * EXL3_BLOCK;                   \
        struct trellis_codes m = matrix_of(args, matrix, w);                                       \
        if (at.y < n_rows_of(step, args.rows) && first < m.n_in)                                   \
            turn(args, m, in, work, at.y, first, thread_index % 32);                               \
    }
TRELLIS_TURN(trellis_turn_0, 0, 3, 6)
TRELLIS_TURN(trellis_turn_1, 1, 8, 11)
TRELLIS_TURN(trellis_turn_2, 2, 13, 16)

// Grid: blocks of 128 outputs, groups of rows.
#define TRELLIS_PRODUCT(name, N, matrix, W, BIAS, ADD, WORK, OUT)                                    \
    kernel void name(constant struct trellis_args &args [[buffer(0)]],                               \
                     constant struct step &step [[buffer(1)]], device const uchar *w [[buffer(W)]],  \
                     device const f32 *bias [[buffer(BIAS)]], device const f32 *add [[buffer(ADD)]], \
                     device const f32 *work [[buffer(WORK)]], device f32 *out [[buffer(OUT)]],       \
                     uint3 at [[threadgroup_position_in_grid]],                                      \
                     uint thread_index [[thread_index_in_threadgroup]])                              \
    {                                                                                                \
        threadgroup f32 found[TRELLIS_MSL_SUMS];                                                     \
        u32 n_rows = n_rows_of(step, args.rows), first = at.y * N, lane = thread_index % 32,         \
            r = thread_index / 32;                                                                   \
        if (first >= n_rows)                                                                         \
            return;                                                                                  \
        u32 n = min(u32(N), n_rows - first);                                                         \
        struct trellis_codes m = matrix_of(args, matrix, w);                                         \
        multiply<N>(m, work, n, at, thread_index, found);                                            \
        threadgroup_barrier(mem_flags::mem_threadgroup);                                             \
        if (r < n)                                                                                   \
            finish(m, bias, add, out, first + r, at.x * EXL3_BLOCK + 4 * lane,                       \
                   trellis_turn(trellis_sum<N>(found, r, lane), lane));                              \
    }
TRELLIS_PRODUCT(trellis_one_0, 1, 0, 3, 4, 5, 6, 7)
TRELLIS_PRODUCT(trellis_one_1, 1, 1, 8, 9, 10, 11, 12)
TRELLIS_PRODUCT(trellis_one_2, 1, 2, 13, 14, 15, 16, 17)
TRELLIS_PRODUCT(trellis_eight_0, TRELLIS_MSL_ROWS, 0, 3, 4, 5, 6, 7)
TRELLIS_PRODUCT(trellis_eight_1, TRELLIS_MSL_ROWS, 1, 8, 9, 10, 11, 12)
TRELLIS_PRODUCT(trellis_eight_2, TRELLIS_MSL_ROWS, 2, 13, 14, 15, 16, 17)
