// trellis_experts_metal.c - the operation's dispatches. One row: its slots are the tiles. More rows:
// experts_tiles makes a table of tiles first.
#include "base/divide.h"
#include "ops/experts/experts_metal.h"
#include "ops/metal_table.h"
#include "ops/trellis_experts/trellis_experts_metal.h"

struct experts_dispatch {
    struct metal_plan *p;
    struct trellis_experts_metal_args args;
    uint32_t n_entries; // most
    bool one;           // row
};

static void launch(struct experts_dispatch *d, const char *name, uint32_t threads, uint32_t x, uint32_t y)
{
    const struct trellis_experts_args *op = &d->args.op;
    struct metal_kernel kernel = { .name = name,
                                   .constants = { op->bits[0], op->bits[1], op->bits[2], op->codebook[0],
                                                  op->codebook[1], op->codebook[2] },
                                   .n_constants = 6,
                                   .grid = { x, y, 1 },
                                   .threads = threads };

    metal_launch_add(d->p, &kernel, &d->args, sizeof d->args);
}

static void launch_table(struct experts_dispatch *d)
{
    const struct experts_args *e = &d->args.op.experts;
    uint32_t whole = d->n_entries / TRELLIS_MSL_ROWS;
    struct metal_kernel kernel = { .name = "experts_tiles",
                                   .n_constants = PRODUCT_N_CONSTANTS,
                                   .grid = { 1, 1, 1 },
                                   .threads = EXPERTS_TABLE_THREADS };

    d->args.n_tiles = whole + (e->n_experts < d->n_entries ? e->n_experts : d->n_entries);
    struct experts_metal_args args = { .n_experts = e->n_experts,
                                       .n_slots = e->n_slots,
                                       .tile_rows = TRELLIS_MSL_ROWS,
                                       .n_tiles = d->args.n_tiles };
    d->p->private_bytes = (experts_entries_at(args.n_tiles) + (uint64_t)d->n_entries) * sizeof(uint32_t);
    metal_launch_add(d->p, &kernel, &args, sizeof args);
}

void metal_plan_trellis_experts(struct metal_plan *p)
{
    struct experts_dispatch d = { .p = p, .one = p->tape.max_rows == 1 };
    const struct experts_args *e = &d.args.op.experts;

    memcpy(&d.args.op, p->command->args, sizeof d.args.op);
    d.args.has_shared = metal_has(p, TRELLIS_EXPERTS_SHARED);
    d.args.adds = metal_has(p, TRELLIS_EXPERTS_ADD);
    d.n_entries = p->tape.max_rows * e->n_slots;
    if (!d.one)
        launch_table(&d);
    uint32_t in_blocks = exl3_padded(e->n_cols) / EXL3_BLOCK,
             hidden_blocks = exl3_padded(e->n_ffn) / EXL3_BLOCK,
             n_tiles = d.one ? e->n_slots : d.args.n_tiles;
    launch(&d, "trellis_experts_turn", TRELLIS_MSL_TURNS * 32, divide_up(2 * in_blocks, TRELLIS_MSL_TURNS),
           d.n_entries);
    launch(&d, d.one ? "trellis_experts_up_one" : "trellis_experts_up_eight", TRELLIS_MSL_THREADS,
           hidden_blocks, n_tiles);
    launch(&d, d.one ? "trellis_experts_down_one" : "trellis_experts_down_eight", TRELLIS_MSL_THREADS,
           in_blocks, n_tiles);
    launch(&d, "trellis_experts_sum", TRELLIS_EXPERTS_MSL_SUM_THREADS,
           divide_up(e->n_cols, TRELLIS_EXPERTS_MSL_SUM_THREADS), p->tape.max_rows);
}
