// experts_up.metal - the operation as defined in experts.h: products over pairs of a gate row and an up row
// of one expert.
#include "ops/experts/entries.metalh"

#define PRODUCT_BUFFERS                                                                               \
    constant struct experts_metal_args &args [[buffer(0)]], constant struct step &step [[buffer(1)]], \
        device const f32 *in [[buffer(2)]], device const f32 *ids [[buffer(3)]],                      \
        device const uchar *gate [[buffer(4)]], device const uchar *up [[buffer(5)]],                 \
        device const f32 *gate_bias [[buffer(6)]], device const f32 *up_bias [[buffer(7)]],           \
        device const uchar *shared_gate [[buffer(8)]], device const uchar *shared_up [[buffer(9)]],   \
        device f32 *out [[buffer(11)]], device const u32 *table [[buffer(18)]]
#define LISTED_OF(t)                                                                  \
    experts_up_product(args, step, t.matrix, in, args.of_shared ? shared_gate : gate, \
                       args.of_shared ? shared_up : up, gate_bias, up_bias, out)

static struct product experts_up_product(constant struct experts_metal_args &args, constant struct step &step,
                                         u32 expert, device const f32 *in, device const uchar *gate,
                                         device const uchar *up, device const f32 *gate_bias,
                                         device const f32 *up_bias, device f32 *out)
{
    struct product p = {};
    u32 n_out = args.product.n_out[0];

    p.args = &args.product;
    p.step = &step;
    p.in = in;
    p.w[0] = gate;
    p.w[1] = up;
    p.weight_row = expert * n_out;
    p.bias[0] = gate_bias + expert * n_out;
    p.bias[1] = up_bias + expert * n_out;
    p.out[0] = out;
    return p;
}

// Of a row in normed, and of its slot in hidden.
static uint2 entry_places(constant struct experts_metal_args &args, u32 entry)
{
    u32 row = entry / (args.n_slots + 1), slot = entry % (args.n_slots + 1);

    return uint2(row * args.product.n_cols, row * hidden_cols(args) + slot * args.n_ffn);
}

LISTED_KERNELS(experts_up)

// Sorts the chosen slots by expert, then by row, and cuts them into tiles. One threadgroup; a thread has
// every 256th expert. For experts_down too: ids are the second operand of both.
kernel void experts_tiles(constant struct experts_metal_args &args [[buffer(0)]],
                          constant struct step &step [[buffer(1)]], device const f32 *ids [[buffer(3)]],
                          device u32 *table [[buffer(18)]], uint thread_index [[thread_index_in_threadgroup]])
{
    threadgroup u32 counts[ROUTE_MAX_EXPERTS];
    u32 n = step.n_rows * args.n_slots;
    device struct listed_tile *tiles = (device struct listed_tile *)(table + 4);
    device u32 *entries = table + experts_entries_at(args.n_tiles);

    for (u32 e = thread_index; e < args.n_experts; e += EXPERTS_TABLE_THREADS) {
        u32 count = 0;
        for (u32 i = 0; i < n; i++)
            count += u32(ids[i]) == e ? 1 : 0;
        counts[e] = count;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (u32 e = thread_index; e < args.n_experts; e += EXPERTS_TABLE_THREADS) {
        u32 first = 0, tile = 0;
        for (u32 i = 0; i < e; i++) {
            first += counts[i];
            tile += (counts[i] + args.tile_rows - 1) / args.tile_rows;
        }
        for (u32 i = 0; i < counts[e]; i += args.tile_rows) {
            tiles[tile].matrix = e;
            tiles[tile].first = first + i;
            tiles[tile++].n = min(args.tile_rows, counts[e] - i);
        }
        if (e == args.n_experts - 1)
            table[0] = tile;
        for (u32 row = 0, i = 0; counts[e] > 0 && row < step.n_rows; row++)
            for (u32 slot = 0; slot < args.n_slots; slot++, i++)
                if (u32(ids[i]) == e)
                    entries[first++] = row * (args.n_slots + 1) + slot;
    }
}
