// moe_few_cuda.c - the launches for few rows: router, gate and up, down; see moe_few.cu.
#include "gemm/cuda/gemm_plan.h"
#include "ops/moe/moe_few.h"

#define UP_NAME(NAME, name, with)   [QUANT_##NAME] = "moe_few_up_" #name,
#define DOWN_NAME(NAME, name, with) [QUANT_##NAME] = "moe_few_down_" #name,
static const gemm_kernel_names up_names = { QUANT_BLOCK_FORMATS(UP_NAME, ) };
static const gemm_kernel_names down_names = { QUANT_BLOCK_FORMATS(DOWN_NAME, ) };

static bool suits(const struct cuda_plan *p, const struct moe_args *a)
{
    u32 rows = p->tape.max_rows;

    return rows > 1 && rows <= MOE_FEW_ROWS && rows * a->route.n_slots <= MOE_FEW_ENTRIES &&
           moe_suits(p, a) && cuda_has_kernel(p, up_names[cuda_weight(p, MOE_GATE)->format]) &&
           cuda_has_kernel(p, down_names[cuda_weight(p, MOE_DOWN)->format]);
}

static u64 take(u64 *at, u64 bytes)
{
    u64 here = *at;

    *at += (bytes + 255) / 256 * 256;
    return here;
}

// What the launches hand on lies in the tape's private memory.
static void take_room(struct cuda_plan *p, struct moe_few_params *q)
{
    u64 at = p->private_at, rows = p->tape.max_rows, n_slots = q->of.route.n_slots;

    q->packed = take(&at, rows * moe_row_bytes(q->of.route.n_cols));
    q->logits = take(&at, rows * q->of.n_logits * sizeof(f32));
    q->hidden = take(&at, rows * n_slots * moe_row_bytes(q->of.n_ffn));
    q->shared_hidden = take(&at, rows * moe_row_bytes(q->of.n_shared));
    p->private_bytes = at - p->private_at;
}

// Shared memory: stages, then `rows` bytes, then the state. Returns the bytes; 0: there is no room for two.
static u32 place(struct moe_few_params *q, u32 rows, u32 most, bool down)
{
    u32 most_stages = down ? MOE_FEW_DOWN_STAGES : MOE_FEW_UP_STAGES;

    rows = (rows + 127) / 128 * 128;
    q->stage_bytes = (q->stage_bytes + 127) / 128 * 128;
    if (most < rows + MOE_FEW_STATE + 2 * q->stage_bytes)
        return 0;
    q->n_stages = (most - rows - MOE_FEW_STATE) / q->stage_bytes;
    q->n_stages = q->n_stages < most_stages ? q->n_stages : most_stages;
    q->team_warps = MOE_THREADS / 32 / q->n_stages;
    q->rows_at = q->n_stages * q->stage_bytes;
    q->state_at = q->rows_at + rows;
    return q->state_at + MOE_FEW_STATE;
}

static u32 place_up(const struct cuda_plan *p, struct moe_few_params *q)
{
    const struct moe_params *m = &q->of;

    q->stage_bytes = 2 * moe_place_rows(&q->of.up, m->w_gate.format, m->route.n_cols, MOE_ROUND_PAIRS);
    return place(q, p->tape.max_rows * moe_row_bytes(m->route.n_cols), p->device.shared_bytes, false);
}

static u32 place_down(const struct cuda_plan *p, struct moe_few_params *q, u32 n_blocks)
{
    struct moe_params *m = &q->of;
    u32 format = m->w_down.format, row = moe_row_bytes(m->n_ffn), shared_row = moe_row_bytes(m->n_shared),
        entries = p->tape.max_rows * (m->route.n_slots + (m->n_shared > 0));

    q->columns =
        MOE_GROUP * moe_deal(m->route.n_cols / MOE_GROUP, n_blocks, &m->column_groups, &m->more_columns);
    u32 routed = moe_place_rows(&m->down, format, m->n_ffn, q->columns),
        shared = m->n_shared ? moe_place_rows(&m->shared_down, format, m->n_shared, q->columns) : 0;
    q->weight_bytes = routed > shared ? routed : shared;
    q->stage_bytes = q->weight_bytes + MOE_FEW_TOGETHER * (row > shared_row ? row : shared_row);
    return place(q, entries * q->columns * (u32)sizeof(f32), p->device.shared_bytes, true);
}

static void launch(struct cuda_plan *p, const char *kernel, struct cuda_shape shape,
                   const struct moe_few_params *q)
{
    cuda_launch_add(p, kernel, shape, q, sizeof *q);
}

bool moe_plan_few(struct cuda_plan *p, const struct moe_args *a)
{
    if (!suits(p, a))
        return false;
    struct moe_few_params route = { .of = moe_params_of(p, a) }, up, down;
    u32 n_logits = route.of.n_logits, rows = p->tape.max_rows, n_cols = a->route.n_cols / MOE_GROUP,
        n_blocks = n_cols < p->device.n_sms ? n_cols : p->device.n_sms;
    take_room(p, &route);
    up = down = route;
    u32 up_shared = place_up(p, &up), down_shared = place_down(p, &down, n_blocks);
    if (!up_shared || !down_shared) {
        p->private_bytes = 0;
        return false;
    }
    route.n_routers = n_logits > p->device.n_sms ? divide_up(n_logits, 2) : n_logits;
    launch(p, "moe_few_route",
           (struct cuda_shape){ { route.n_routers + rows, 1, 1 }, MOE_FEW_ROUTE_THREADS, 0 }, &route);
    launch(p, up_names[up.of.w_gate.format],
           (struct cuda_shape){ { p->device.n_sms, 1, 1 }, MOE_THREADS, up_shared }, &up);
    launch(p, down_names[down.of.w_down.format],
           (struct cuda_shape){ { n_blocks, 1, 1 }, MOE_THREADS, down_shared }, &down);
    return true;
}
