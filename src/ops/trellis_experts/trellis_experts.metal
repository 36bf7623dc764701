// trellis_experts.metal - the operation as defined in trellis_experts.h, in four dispatches: rows turned for
// each slot, gate and up of an expert and what down multiplies of them, down, and the sum of a row's slots.
// The products are those of ops/trellis/trellis.metalh, in fp32.
#include "device/metal/msl.h"
#include "ops/experts/experts_metal.h"
#include "gemm/metal/activation.metalh"
#include "ops/trellis/trellis.metalh"
#include "ops/trellis_experts/trellis_experts_metal.h"

constant u32 EXPERTS_GATE_BITS [[function_constant(0)]];
constant u32 EXPERTS_UP_BITS [[function_constant(1)]];
constant u32 EXPERTS_DOWN_BITS [[function_constant(2)]];
constant u32 EXPERTS_GATE_CODEBOOK [[function_constant(3)]];
constant u32 EXPERTS_UP_CODEBOOK [[function_constant(4)]];
constant u32 EXPERTS_DOWN_CODEBOOK [[function_constant(5)]];

#define EXPERTS_AT \
    uint3 at [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]]

// A matrix of an expert, and its factors: suh, and behind it svh.
struct expert_matrix {
    device const uchar *codes;
    device const half *suh, *svh;
    u32 n_in, n_out;
};

static struct expert_matrix matrix_of(device const uchar *stack, u32 expert, u32 n_in, u32 n_out, u32 bits)
{
    struct expert_matrix m;

    m.codes = stack + expert * exl3_bytes(n_in, n_out, bits);
    m.suh = (device const half *)(m.codes + exl3_codes_bytes(n_in, n_out, bits));
    m.svh = m.suh + n_in;
    m.n_in = n_in;
    m.n_out = n_out;
    return m;
}

static u32 n_in_of(constant struct trellis_experts_metal_args &args)
{
    return exl3_padded(args.op.experts.n_cols);
}
static u32 n_hidden_of(constant struct trellis_experts_metal_args &args)
{
    return exl3_padded(args.op.experts.n_ffn);
}
static struct expert_matrix gate_of(constant struct trellis_experts_metal_args &args,
                                    device const uchar *stack, u32 expert)
{
    return matrix_of(stack, expert, n_in_of(args), n_hidden_of(args), EXPERTS_GATE_BITS);
}
static struct expert_matrix up_of(constant struct trellis_experts_metal_args &args, device const uchar *stack,
                                  u32 expert)
{
    return matrix_of(stack, expert, n_in_of(args), n_hidden_of(args), EXPERTS_UP_BITS);
}
static struct expert_matrix down_of(constant struct trellis_experts_metal_args &args,
                                    device const uchar *stack, u32 expert)
{
    return matrix_of(stack, expert, n_hidden_of(args), n_in_of(args), EXPERTS_DOWN_BITS);
}

// What down multiplies, behind what gate and up do for all entries of the step.
static device f32 *of_down(constant struct trellis_experts_metal_args &args, constant struct step &step,
                           device f32 *work)
{
    return work +
           u64(step.n_rows * args.op.experts.n_slots) * trellis_experts_up_cols(args.op.experts.n_cols);
}

// Grid: blocks of 128 columns of a row for gate and for up, eight of them to a threadgroup; entries.
kernel void trellis_experts_turn(constant struct trellis_experts_metal_args &args [[buffer(0)]],
                                 constant struct step &step [[buffer(1)]], device const f32 *in [[buffer(2)]],
                                 device const f32 *ids [[buffer(3)]], device const uchar *gate [[buffer(5)]],
                                 device const uchar *up [[buffer(6)]], device f32 *work [[buffer(10)]],
                                 EXPERTS_AT)
{
    u32 n_in = n_in_of(args), n_cols = args.op.experts.n_cols, n_slots = args.op.experts.n_slots,
        entry = at.y, place = (at.x * TRELLIS_MSL_TURNS + thread_index / 32) * EXL3_BLOCK,
        first = place % n_in, lane = thread_index % 32;

    if (entry >= step.n_rows * n_slots || place >= 2 * n_in)
        return;
    u32 expert = u32(ids[entry]);
    device const half *suh = place < n_in ? gate_of(args, gate, expert).suh : up_of(args, up, expert).suh;
    float4 v = trellis_scaled(in + u64(entry / n_slots) * n_cols, suh, first + 4 * lane, n_cols);
    trellis_store(work + u64(entry) * 2 * n_in + place, trellis_turn(v, lane), lane);
}

// Tile `at` of a step; n 0: there is none.
static struct listed_tile tile_at(constant struct trellis_experts_metal_args &args,
                                  constant struct step &step, device const f32 *ids, device const u32 *table,
                                  u32 at)
{
    struct listed_tile t;

    t.first = at;
    t.n = args.n_tiles == 0 ? step.n_rows : at < table[0] ? 1 : 0;
    t.matrix = args.n_tiles == 0 && t.n > 0 ? u32(ids[at]) : 0;
    if (args.n_tiles > 0 && t.n > 0) {
        device const struct listed_tile *from = (device const struct listed_tile *)(table + 4) + at;
        t.matrix = from->matrix;
        t.first = from->first;
        t.n = from->n;
    }
    return t;
}

// The table numbers a row's slots and one more.
static u32 entry_at(constant struct trellis_experts_metal_args &args, device const u32 *table,
                    thread const struct listed_tile &t, u32 i)
{
    u32 n_slots = args.op.experts.n_slots;

    if (args.n_tiles == 0)
        return t.first;
    u32 entry = table[experts_entries_at(args.n_tiles) + t.first + i];
    return entry / (n_slots + 1) * n_slots + entry % (n_slots + 1);
}

// Sums of the tile's rows, which lie `stride` apart, with 128 outputs of a matrix.
template <u32 N>
static void multiply(thread const struct expert_matrix &m, u32 out, u32 bits, u32 codebook,
                     thread const u32 *entries, device const f32 *from, u32 stride, u32 thread_index,
                     threadgroup f32 *found)
{
    device const f32 *rows[N];
    float2 sums[N];

    UNROLL for (u32 r = 0; r < N; r++)
    {
        rows[r] = from + u64(entries[r]) * stride;
    }
    struct trellis_columns c =
        trellis_columns_of(m.codes, m.n_in, m.n_out, out, bits, codebook, thread_index);
    trellis_multiply<N>(c, rows, thread_index % 32, sums);
    trellis_found<N>(sums, thread_index, found);
}

template <u32 N>
static void list_entries(constant struct trellis_experts_metal_args &args, device const u32 *table,
                         thread const struct listed_tile &t, thread u32 *entries)
{
    UNROLL for (u32 r = 0; r < N; r++) // a row that does not exist is the first one again
    {
        entries[r] = entry_at(args, table, t, r < t.n ? r : 0);
    }
}

// A lane's four hidden numbers, for down.
static float4 hidden_of(constant struct trellis_experts_metal_args &args,
                        thread const struct expert_matrix &gate, thread const struct expert_matrix &up,
                        thread const struct expert_matrix &down, float4 a, float4 b, u32 first)
{
    float4 v = float4(0.0f);

    UNROLL for (u32 i = 0; i < 4; i++)
    {
        f32 own = activation_of(args.op.experts.activation, a[i] * f32(gate.svh[first + i])) *
                  (b[i] * f32(up.svh[first + i]));
        if (first + i < args.op.experts.n_ffn)
            v[i] = own * f32(down.suh[first + i]);
    }
    return v;
}

#define EXPERTS_UP(name, N)                                                                                  \
    kernel void name(constant struct trellis_experts_metal_args &args [[buffer(0)]],                         \
                     constant struct step &step [[buffer(1)]], device const f32 *ids [[buffer(3)]],          \
                     device const uchar *gate [[buffer(5)]], device const uchar *up [[buffer(6)]],           \
                     device const uchar *down [[buffer(7)]], device f32 *work [[buffer(10)]],                \
                     device const u32 *table [[buffer(18)]], EXPERTS_AT)                                     \
    {                                                                                                        \
        threadgroup f32 gate_found[TRELLIS_MSL_SUMS];                                                        \
        threadgroup f32 up_found[TRELLIS_MSL_SUMS];                                                          \
        u32 lane = thread_index % 32, r = thread_index / 32, n_in = n_in_of(args), entries[N];               \
        struct listed_tile t = tile_at(args, step, ids, table, at.y);                                        \
        if (t.n == 0)                                                                                        \
            return;                                                                                          \
        struct expert_matrix g = gate_of(args, gate, t.matrix), u = up_of(args, up, t.matrix);               \
        list_entries<N>(args, table, t, entries);                                                            \
        multiply<N>(g, at.x, EXPERTS_GATE_BITS, EXPERTS_GATE_CODEBOOK, entries, work, 2 * n_in,              \
                    thread_index, gate_found);                                                               \
        multiply<N>(u, at.x, EXPERTS_UP_BITS, EXPERTS_UP_CODEBOOK, entries, work + n_in, 2 * n_in,           \
                    thread_index, up_found);                                                                 \
        threadgroup_barrier(mem_flags::mem_threadgroup);                                                     \
        if (r < t.n) {                                                                                       \
            float4 a = trellis_turn(trellis_sum<N>(gate_found, r, lane), lane),                              \
                   b = trellis_turn(trellis_sum<N>(up_found, r, lane), lane);                                \
            float4 v =                                                                                       \
                hidden_of(args, g, u, down_of(args, down, t.matrix), a, b, at.x * EXL3_BLOCK + 4 * lane);    \
            trellis_store(of_down(args, step, work) + u64(entry_at(args, table, t, r)) * n_hidden_of(args) + \
                              at.x * EXL3_BLOCK,                                                             \
                          trellis_turn(v, lane), lane);                                                      \
        }                                                                                                    \
    }
// Grid: blocks of 128 hidden numbers, tiles.
EXPERTS_UP(trellis_experts_up_one, 1)
EXPERTS_UP(trellis_experts_up_eight, TRELLIS_MSL_ROWS)

// A lane's four of a slot's results.
static void store_result(device f32 *to, thread const struct expert_matrix &down, u32 first, u32 n_cols,
                         float4 v)
{
    UNROLL for (u32 i = 0; i < 4; i++)
    {
        if (first + i < n_cols)
            to[first + i] = v[i] * f32(down.svh[first + i]);
    }
}

// Results take the place of what gate and up multiplied: [entries, n_cols].
#define EXPERTS_DOWN(name, N)                                                                               \
    kernel void name(constant struct trellis_experts_metal_args &args [[buffer(0)]],                        \
                     constant struct step &step [[buffer(1)]], device const f32 *ids [[buffer(3)]],         \
                     device const uchar *down [[buffer(7)]], device f32 *work [[buffer(10)]],               \
                     device const u32 *table [[buffer(18)]], EXPERTS_AT)                                    \
    {                                                                                                       \
        threadgroup f32 found[TRELLIS_MSL_SUMS];                                                            \
        u32 lane = thread_index % 32, r = thread_index / 32, n_cols = args.op.experts.n_cols, entries[N];   \
        struct listed_tile t = tile_at(args, step, ids, table, at.y);                                       \
        if (t.n == 0)                                                                                       \
            return;                                                                                         \
        struct expert_matrix d = down_of(args, down, t.matrix);                                             \
        list_entries<N>(args, table, t, entries);                                                           \
        multiply<N>(d, at.x, EXPERTS_DOWN_BITS, EXPERTS_DOWN_CODEBOOK, entries, of_down(args, step, work),  \
                    d.n_in, thread_index, found);                                                           \
        threadgroup_barrier(mem_flags::mem_threadgroup);                                                    \
        if (r < t.n)                                                                                        \
            store_result(work + u64(entry_at(args, table, t, r)) * n_cols, d, at.x * EXL3_BLOCK + 4 * lane, \
                         n_cols, trellis_turn(trellis_sum<N>(found, r, lane), lane));                       \
    }
// Grid: blocks of 128 columns, tiles.
EXPERTS_DOWN(trellis_experts_down_one, 1)
EXPERTS_DOWN(trellis_experts_down_eight, TRELLIS_MSL_ROWS)

// Grid: tiles of columns, rows.
kernel void trellis_experts_sum(constant struct trellis_experts_metal_args &args [[buffer(0)]],
                                constant struct step &step [[buffer(1)]],
                                device const f32 *weights [[buffer(4)]],
                                device const f32 *shared [[buffer(8)]], device const f32 *add [[buffer(9)]],
                                device const f32 *work [[buffer(10)]], device f32 *out [[buffer(11)]],
                                EXPERTS_AT)
{
    u32 n_cols = args.op.experts.n_cols, n_slots = args.op.experts.n_slots,
        column = at.x * TRELLIS_EXPERTS_MSL_SUM_THREADS + thread_index, row = at.y;
    u64 place = u64(row) * n_cols + column;
    f32 sum = 0.0f;

    if (row >= step.n_rows || column >= n_cols)
        return;
    weights += row * (n_slots + 1);
    work += u64(row) * n_slots * n_cols + column;
    for (u32 j = 0; j < n_slots; j++)
        sum = fma(weights[j], work[u64(j) * n_cols], sum);
    if (args.has_shared)
        sum = fma(weights[n_slots], shared[place], sum);
    out[place] = (args.adds ? add[place] : 0.0f) + sum;
}
