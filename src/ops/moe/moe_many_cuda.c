// moe_many_cuda.c - the launches for many rows: router, sort by expert, packing, gate and up, down, the sum.
// The shared expert is two dense products.
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

// The shared expert as a dense product's epilogue has it.
static bool shared_suits(const struct cuda_plan *p, const struct experts_args *e)
{
    return e->n_shared == 0 ||
           (cuda_weight(p, MOE_SHARED_GATE)->format == cuda_weight(p, MOE_SHARED_UP)->format &&
            e->activation <= ACTIVATION_GELU_TANH && e->limit == 0);
}

static bool suits(const struct cuda_plan *p, const struct moe_args *a)
{
    const struct experts_args *e = &a->experts;
    u32 up = cuda_weight(p, MOE_GATE)->format, down = cuda_weight(p, MOE_DOWN)->format;
    u64 entries = (u64)p->tape.max_rows * e->n_slots;

    return p->tape.max_rows >= MOE_LEAST_MANY && !e->exact && shared_suits(p, e) &&
           cuda_weight(p, MOE_UP)->format == up && has_kernel(p, up_names[up]) &&
           has_kernel(p, down_names[down]) && e->n_cols % 64 == 0 && e->n_ffn % 64 == 0 &&
           e->n_experts <= MOE_MANY_EXPERTS && entries / MOE_TILE_ROWS + e->n_experts <= MOE_MOST_TILES;
}

// Where the regions and what belongs to them lie. Packed rows and what down adds are not there at the same
// time.
struct moe_room {
    u64 packed, hidden, shared, entries, count, region, end;
};
static struct moe_room room_at(u64 at, const struct experts_args *e, u32 max_rows, u32 n_rows)
{
    u32 n_entries = max_rows * e->n_slots;
    struct moe_room r = { .packed = (at + 255) / 256 * 256 };

    r.hidden = r.packed + (u64)(n_rows > n_entries ? n_rows : n_entries) * moe_packed_bytes(e->n_cols);
    r.shared = r.hidden + (u64)n_rows * moe_packed_bytes(e->n_ffn);
    r.entries = r.shared + (e->n_shared ? (u64)max_rows * e->n_cols * sizeof(f32) : 0);
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
    struct moe_room room = room_at(at, e, p->tape.max_rows, n_rows);

    if (room.end <= at + work->bytes)
        return room;
    room = room_at(p->private_at, e, p->tape.max_rows, n_rows);
    p->private_bytes = room.end - p->private_at;
    return room;
}

// A dense product, whose private memory lies behind what this command has of its own.
static void launch_dense(struct cuda_plan *p, const struct gemm_plan *product)
{
    u64 own = (p->private_bytes + 255) / 256 * 256;

    p->private_at += own;
    p->private_bytes = 0;
    gemm_launch(p, product);
    p->private_at -= own;
    p->private_bytes += own;
}

// Before the room's rows are packed: there the products pack theirs. hidden: [rows, n_shared].
static void launch_shared(struct cuda_plan *p, const struct experts_args *e, struct moe_room room, u64 normed,
                          u64 hidden)
{
    struct gemm_plan up = { .params = { .w = { weight_layout_of(p, MOE_SHARED_GATE),
                                               weight_layout_of(p, MOE_SHARED_UP) },
                                        .out = { hidden },
                                        .in = normed,
                                        .out_stride = { e->n_shared },
                                        .n_cols = e->n_cols,
                                        .mode = EPILOGUE_GATED,
                                        .rows = ROWS_STEP,
                                        .activation = e->activation },
                            .work = room.packed,
                            .work_bytes = room.shared - room.packed };
    struct gemm_plan down = { .params = { .w = { weight_layout_of(p, MOE_SHARED_DOWN) },
                                          .out = { room.shared },
                                          .in = hidden,
                                          .out_stride = { e->n_cols },
                                          .n_cols = e->n_shared,
                                          .mode = EPILOGUE_LINEAR,
                                          .rows = ROWS_STEP },
                              .work = up.work,
                              .work_bytes = up.work_bytes };

    launch_dense(p, &up);
    launch_dense(p, &down);
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
    launch(p, "moe_sort",
           (struct cuda_shape){ { e->n_experts, 1, 1 }, MOE_SORT_THREADS, p->tape.max_rows * e->n_slots },
           &m);
    launch(p, "moe_pack", (struct cuda_shape){ { n_rows / 8, 1, 1 }, MOE_PACK_THREADS, 0 }, &pack);
    launch(p, up_names[m.w[0].format], product, &m);
    launch(p, down_names[down.w[0].format], product, &down);
}

static void launch_sum(struct cuda_plan *p, const struct moe_args *a, struct moe_room room, u64 weights)
{
    const struct experts_args *e = &a->experts;
    struct moe_sum_params sum = { .parts = room.packed,
                                  .shared = e->n_shared ? room.shared : 0,
                                  .weights = weights,
                                  .add = a->adds ? cuda_at(p, MOE_IN) : 0,
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
    p->command = &parts[MOE_ROUTE];
    cuda_plan_route(p);
    u64 ids = cuda_at(p, ROUTE_IDS), weights = cuda_at(p, ROUTE_WEIGHTS);
    p->command = &parts[MOE_RMSNORM];
    if (a->own_norm)
        cuda_plan_rmsnorm(p);
    p->command = &parts[MOE_EXPERTS_UP];
    u64 normed = cuda_at(p, EXPERTS_UP_IN);
    p->command = &parts[MOE_EXPERTS_DOWN];
    u64 hidden = cuda_at(p, EXPERTS_DOWN_IN);
    p->command = whole;
    u32 n_rows = moe_region_rows(p->tape.max_rows * e->n_slots, e->n_experts);
    struct moe_room room = take_room(p, &parts[MOE_EXPERTS_DOWN], e, n_rows);
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
    if (e->n_shared)
        launch_shared(p, e, room, normed, hidden);
    launch_products(p, e, m, normed);
    launch_sum(p, a, room, weights);
    return true;
}
