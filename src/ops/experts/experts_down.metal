// experts_down.metal - the operation as defined in experts.h. One row: simdgroups take the slots, and one
// owner adds what they found. More rows: products of each slot into the workspace, and then a sum. Both add
// the same numbers in the same order.
#include "ops/experts/entries.metalh"

#define PRODUCT_BUFFERS                                                                               \
    constant struct experts_metal_args &args [[buffer(0)]], constant struct step &step [[buffer(1)]], \
        device const f32 *in [[buffer(2)]], device const f32 *ids [[buffer(3)]],                      \
        device const uchar *down [[buffer(5)]], device const f32 *bias [[buffer(6)]],                 \
        device const uchar *shared [[buffer(7)]], device f32 *work [[buffer(9)]],                     \
        device const u32 *table [[buffer(18)]]
#define LISTED_OF(t) \
    experts_down_product(args, step, t.matrix, in, args.of_shared ? shared : down, bias, work)

static struct product experts_down_product(constant struct experts_metal_args &args,
                                           constant struct step &step, u32 expert, device const f32 *in,
                                           device const uchar *w, device const f32 *bias, device f32 *out)
{
    struct product p = {};
    u32 n_out = args.product.n_out[0];

    p.args = &args.product;
    p.step = &step;
    p.in = in;
    p.w[0] = w;
    p.weight_row = expert * n_out;
    p.bias[0] = bias + expert * n_out;
    p.out[0] = out;
    return p;
}

// Of a slot in hidden, and of its result in the workspace: [rows, n_slots + 1, n_out].
static uint2 entry_places(constant struct experts_metal_args &args, u32 entry)
{
    u32 row = entry / (args.n_slots + 1), slot = entry % (args.n_slots + 1);

    return uint2(row * hidden_cols(args) + slot * args.n_ffn, entry * args.product.n_out[0]);
}

LISTED_KERNELS(experts_down)

// One slot's results of EXPERTS_DOWN_PAIRS pairs, without its weight: pair n in lane n.
static float2 slot_sums(constant struct experts_metal_args &args, constant struct step &step, u32 slot,
                        thread struct product &p, uint2 at)
{
    bool shared = slot == args.n_slots;
    struct tile t;

    p.args = shared ? &args.shared : &args.product;
    t.matrix = shared ? 1 : 0;
    t.first = at.x * EXPERTS_DOWN_PAIRS;
    t.n = min(u32(EXPERTS_DOWN_PAIRS), product_pairs(PRODUCT_PLAIN, p.args->n_out[0]) - t.first);
    float2 sums =
        rows_sums<EXPERTS_DOWN_PAIRS, 1, device const float4 *>(p, activations_of(p, 1), t, 0, at.y);
    if (!PRODUCT_BIAS || shared || at.y >= t.n)
        return sums;
    struct pair r = pair_find(p, 0, t.first + at.y);
    return sums + float2(p.bias[0][r.row[0]], p.bias[0][r.row[1]]);
}

// One row. Grid: tiles of pairs; a simdgroup for each slot, up to EXPERTS_DOWN_SIMDS.
kernel void experts_down_slots(PRODUCT_BUFFERS, device const f32 *weights [[buffer(4)]],
                               device const f32 *add [[buffer(8)]], device f32 *out [[buffer(10)]],
                               PRODUCT_AT, uint3 n_threads [[threads_per_threadgroup]])
{
    threadgroup u32 from[ROUTE_MAX_SLOTS + 1];
    threadgroup float2 found[(ROUTE_MAX_SLOTS + 1) * EXPERTS_DOWN_PAIRS];
    u32 n_slots = args.n_slots + args.has_shared, lane = thread_index % 32, n_out = args.product.n_out[0];
    struct listed_tile t;

    if (step.n_rows == 0)
        return;
    for (u32 j = thread_index; j < n_slots; j += n_threads.x)
        from[j] = j * args.n_ffn;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (u32 j = thread_index / 32; j < n_slots; j += n_threads.x / 32) {
        t.matrix = j < args.n_slots ? u32(ids[j]) : 0;
        struct product p = LISTED_OF(t);
        p.w[1] = shared;
        p.n_rows = 1;
        p.from = from + j;
        float2 sums = slot_sums(args, step, j, p, uint2(at.x, lane));
        if (lane < EXPERTS_DOWN_PAIRS)
            found[j * EXPERTS_DOWN_PAIRS + lane] = sums;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    u32 column = at.x * 2 * EXPERTS_DOWN_PAIRS + thread_index;
    if (thread_index >= 2 * EXPERTS_DOWN_PAIRS || column >= n_out)
        return;
    f32 sum = 0.0f;
    for (u32 j = 0; j < n_slots; j++)
        sum = fma(weights[j], found[j * EXPERTS_DOWN_PAIRS + thread_index / 2][thread_index % 2], sum);
    out[column] = (args.adds ? add[column] : 0.0f) + sum;
}

// Grid: tiles of columns, rows. found: [rows, n_slots + 1, n_out].
kernel void experts_sum(constant struct experts_metal_args &args [[buffer(0)]],
                        constant struct step &step [[buffer(1)]], device const f32 *weights [[buffer(4)]],
                        device const f32 *add [[buffer(8)]], device const f32 *found [[buffer(9)]],
                        device f32 *out [[buffer(10)]], PRODUCT_AT)
{
    u32 column = at.x * EXPERTS_SUM_THREADS + thread_index, row = at.y, n_out = args.product.n_out[0];
    u64 place = u64(row) * n_out + column;
    f32 sum = 0.0f;

    if (row >= step.n_rows || column >= n_out)
        return;
    weights += row * (args.n_slots + 1);
    found += u64(row) * (args.n_slots + 1) * n_out + column;
    for (u32 j = 0; j < args.n_slots + args.has_shared; j++)
        sum = fma(weights[j], found[u64(j) * n_out], sum);
    out[place] = (args.adds ? add[place] : 0.0f) + sum;
}
