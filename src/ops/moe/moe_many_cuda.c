// moe_many_cuda.c - the launches for many rows: router, sort by expert, packing, gate and up, down, the sum.
#include "gemm/cuda/gemm_plan.h"
#include "ops/cuda_table.h"
#include "ops/moe/moe_cuda.h"
#include "ops/moe/moe_many.h"

#define UP_NAME(NAME, name)   [QUANT_##NAME] = "moe_hopper_up_" #name,
#define DOWN_NAME(NAME, name) [QUANT_##NAME] = "moe_hopper_down_" #name,
static const gemm_kernel_names up_names = { MOE_HOPPER_FORMATS(UP_NAME) };
static const gemm_kernel_names down_names = { MOE_HOPPER_FORMATS(DOWN_NAME) };

static bool has_kernel(const struct cuda_plan *p, const char *name)
{
    return name && cuda_has_kernel(p, name);
}

static bool suits(const struct cuda_plan *p, const struct moe_args *a)
{
    const struct experts_args *e = &a->experts;
    u32 up = cuda_weight(p, MOE_GATE)->format, down = cuda_weight(p, MOE_DOWN)->format;
    u64 entries = (u64)p->tape.max_rows * e->n_slots;

    return p->tape.max_rows >= MOE_LEAST_MANY && !e->exact && e->n_shared == 0 &&
           cuda_weight(p, MOE_UP)->format == up && has_kernel(p, up_names[up]) &&
           has_kernel(p, down_names[down]) && e->n_cols % 128 == 0 && e->n_ffn % 128 == 0 &&
           e->n_experts <= MOE_MANY_EXPERTS && entries / MOE_TILE_ROWS + e->n_experts <= MOE_MOST_TILES;
}

// Where the regions and what belongs to them lie. Packed rows and what down adds are not there at the same
// time.
struct moe_room {
    u64 packed, hidden, entries, count, region, end;
};
static struct moe_room room_at(u64 at, const struct experts_args *e, u32 n_entries, u32 n_rows)
{
    struct moe_room r = { .packed = (at + 255) / 256 * 256 };

    r.hidden = r.packed + (u64)(n_rows > n_entries ? n_rows : n_entries) * e->n_cols * 2;
    r.entries = r.hidden + (u64)n_rows * e->n_ffn * 2;
    r.count = r.entries + (u64)n_rows * sizeof(u32);
    r.region = r.count + e->n_experts * sizeof(u32);
    r.end = r.region + e->n_experts * sizeof(u32);
    return r;
}

// In the workspace, or in the tape's private memory where that is too small: a few rows have whole regions
// too.
static struct moe_room take_room(struct cuda_plan *p, const struct command *down,
                                 const struct experts_args *e, u32 n_rows)
{
    const struct operand *work = &down->operands[EXPERTS_DOWN_WORK];
    u64 at = (u64)(uintptr_t)work->buffer->native + work->offset;
    struct moe_room room = room_at(at, e, p->tape.max_rows * e->n_slots, n_rows);

    if (room.end <= at + work->bytes)
        return room;
    room = room_at(p->private_at, e, p->tape.max_rows * e->n_slots, n_rows);
    p->private_bytes = room.end - p->private_at;
    return room;
}

static void launch(struct cuda_plan *p, const char *kernel, struct cuda_shape shape,
                   const struct moe_many_params *m)
{
    cuda_launch_add(p, kernel, shape, m, sizeof *m);
}

static void launch_products(struct cuda_plan *p, const struct experts_args *e, struct moe_many_params m,
                            u64 normed)
{
    u32 n_rows = moe_region_rows(p->tape.max_rows * e->n_slots, e->n_experts);
    struct cuda_shape product = { { p->device.n_sms, 1, 1 }, HOPPER_MOE_THREADS, MOE_HOPPER_SHARED };
    struct moe_many_params pack = m, down = m;

    pack.rows = normed;
    pack.out = m.rows;
    down.w[0] = down.w[1] = weight_layout_of(p, MOE_DOWN);
    down.bias[0] = cuda_at(p, MOE_DOWN_BIAS);
    down.bias[1] = 0;
    down.rows = m.out;
    down.out = m.rows;
    down.n_cols = e->n_ffn;
    down.n_out = e->n_cols;
    down.n_pairs = e->n_cols / 2;
    down.gated = false;
    launch(p, "moe_sort", (struct cuda_shape){ { e->n_experts, 1, 1 }, MOE_SORT_THREADS, 0 }, &m);
    launch(p, "moe_pack", (struct cuda_shape){ { n_rows / 8, 1, 1 }, MOE_PACK_THREADS, 0 }, &pack);
    launch(p, up_names[m.w[0].format], product, &m);
    launch(p, down_names[down.w[0].format], product, &down);
}

static void launch_sum(struct cuda_plan *p, const struct experts_args *e, u64 parts, u64 weights)
{
    struct moe_sum_params sum = { .parts = parts,
                                  .weights = weights,
                                  .add = cuda_at(p, MOE_IN),
                                  .out = cuda_at(p, MOE_OUT),
                                  .n_cols = e->n_cols,
                                  .n_slots = e->n_slots };
    struct cuda_shape shape = { { divide_up(e->n_cols, 8 * MOE_SUM_THREADS), p->tape.max_rows, 1 },
                                MOE_SUM_THREADS,
                                0 };
    cuda_launch_add(p, "moe_sum", shape, &sum, sizeof sum);
}

bool moe_plan_many(struct cuda_plan *p, const struct moe_args *a)
{
    const struct experts_args *e = &a->experts;
    const struct command *whole = p->command;
    struct command parts[MOE_N_PARTS];

    if (!suits(p, a))
        return false;
    moe_parts(whole, parts);
    p->command = &parts[0];
    cuda_plan_route(p);
    u64 normed = cuda_at(p, ROUTE_NORMED), ids = cuda_at(p, ROUTE_IDS), weights = cuda_at(p, ROUTE_WEIGHTS);
    p->command = whole;
    u32 n_rows = moe_region_rows(p->tape.max_rows * e->n_slots, e->n_experts);
    struct moe_room room = take_room(p, &parts[2], e, n_rows);
    struct moe_many_params m = { .w = { weight_layout_of(p, MOE_GATE), weight_layout_of(p, MOE_UP) },
                                 .bias = { cuda_at(p, MOE_GATE_BIAS), cuda_at(p, MOE_UP_BIAS) },
                                 .rows = room.packed,
                                 .out = room.hidden,
                                 .ids = ids,
                                 .count = room.count,
                                 .region = room.region,
                                 .entries = room.entries,
                                 .n_cols = e->n_cols,
                                 .n_out = e->n_ffn,
                                 .n_pairs = e->n_ffn,
                                 .n_experts = e->n_experts,
                                 .n_slots = e->n_slots,
                                 .gated = true,
                                 .activation = e->activation,
                                 .limit = e->limit };
    launch_products(p, e, m, normed);
    launch_sum(p, e, room.packed, weights);
    return true;
}
