// lora_cpu.c - the definition, and the walk that the vector kernels share: first all h, then what they add.
//
// A tile is some ranks of a row, then some columns of a row; neighbouring tiles are of neighbouring rows, so
// that the matrices' parts stay in the first cache. A step without adapters has no tiles.
#include "ops/lora/adapted.h"
#include "ops/rows.h"
#include "ops/vec/row_kernels.h"

enum { COLS = 256 }; // of a tile

static uint32_t n_groups(uint32_t n_ranks)
{
    return (n_ranks + LORA_RANKS - 1) / LORA_RANKS;
}

static uint32_t n_blocks(uint32_t n_out)
{
    return (n_out + COLS - 1) / COLS;
}

// [n_adapters] of the row's sequence
static const float *scales_of(const struct cpu_call *call, uint32_t r)
{
    const struct lora_args *args = cpu_args(call);
    uint32_t row = args->rows == ROWS_STEP ? r : step_outputs(call->step)[r];
    return (const float *)cpu_base(call, LORA_SCALES) +
           (size_t)step_slots(call->step)[row] * args->n_adapters;
}

static bool any_adapter(const struct cpu_call *call, uint32_t n_rows)
{
    const struct lora_args *args = cpu_args(call);

    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t i = 0; i < args->n_adapters; i++)
            if (scales_of(call, r)[i] != 0)
                return true;
    return false;
}

static void lora_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct lora_args *args = cpu_args(call);
    uint32_t n_rows = rows_of(call->step, args->rows);

    if (!any_adapter(call, n_rows))
        return;
    plan->n_phases = 2;
    for (uint32_t i = 0; i < args->n_targets; i++) {
        plan->n_tiles[0] += n_groups(args->n_ranks[i]) * n_rows;
        plan->n_tiles[1] += n_blocks(args->n_out[i]) * n_rows;
    }
}

struct lora_tile {
    uint32_t target, part, row;
};

static struct lora_tile tile_at(const struct cpu_call *call, uint32_t phase, uint32_t index)
{
    const struct lora_args *args = cpu_args(call);
    uint32_t n_rows = rows_of(call->step, args->rows), part = index / n_rows;
    struct lora_tile tile = { .row = index % n_rows };

    for (;; tile.target++) {
        uint32_t n = phase == 0 ? n_groups(args->n_ranks[tile.target]) : n_blocks(args->n_out[tile.target]);
        tile.part = part;
        if (part < n)
            return tile;
        part -= n;
    }
}

static const void *target_base(const struct cpu_call *call, const struct lora_tile *t, uint32_t operand)
{
    return cpu_base(call, operand + LORA_OPERANDS * t->target);
}

// The row's h of the tile's target.
static float *work_of(const struct cpu_call *call, const struct lora_tile *t)
{
    const struct lora_args *args = cpu_args(call);
    return (float *)cpu_row(call, LORA_WORK, t->row) + lora_first_rank(args->n_ranks, t->target);
}

static struct lora_down down_of(const struct cpu_call *call, uint32_t index)
{
    const struct lora_args *args = cpu_args(call);
    struct lora_tile t = tile_at(call, 0, index);
    uint32_t first = t.part * LORA_RANKS, left = args->n_ranks[t.target] - first;

    return (struct lora_down){ .in = cpu_row(call, LORA_IN, t.row),
                               .a = (const float *)target_base(call, &t, LORA_A) +
                                    (size_t)first * args->n_cols,
                               .owners = (const uint32_t *)target_base(call, &t, LORA_OWNERS) + first,
                               .scales = scales_of(call, t.row),
                               .h = work_of(call, &t) + first,
                               .n_cols = args->n_cols,
                               .n_ranks = left < LORA_RANKS ? left : LORA_RANKS };
}

static struct lora_up up_of(const struct cpu_call *call, uint32_t index)
{
    const struct lora_args *args = cpu_args(call);
    struct lora_tile t = tile_at(call, 1, index);
    uint32_t n_out = args->n_out[t.target], first = t.part * COLS, left = n_out - first;

    return (struct lora_up){
        .h = work_of(call, &t),
        .b = (const float *)target_base(call, &t, LORA_B) + first,
        .out = (float *)cpu_row(call, LORA_OUT + LORA_OPERANDS * t.target, t.row) + first,
        .n = left < COLS ? left : COLS,
        .stride = n_out,
        .n_ranks = args->n_ranks[t.target],
    };
}

static void down_plain(const struct lora_down *d)
{
    for (uint32_t j = 0; j < d->n_ranks; j++) {
        float scale = d->scales[d->owners[j]], sum = 0;
        for (uint32_t k = 0; k < d->n_cols && scale != 0; k++)
            sum += d->in[k] * d->a[(size_t)j * d->n_cols + k];
        d->h[j] = scale != 0 ? scale * sum : 0;
    }
}

static void up_plain(const struct lora_up *u)
{
    for (uint32_t j = 0; j < u->n_ranks; j++)
        for (uint32_t n = 0; n < u->n && u->h[j] != 0; n++)
            u->out[n] += u->h[j] * u->b[(size_t)j * u->stride + n];
}

// Of a target's matrices: ADAPTED_A, ADAPTED_B or ADAPTED_OWNERS.
static uint32_t operand_of(const struct adapted *a, uint32_t target, uint32_t which)
{
    return a->operands + which + ADAPTED_OPERANDS * target;
}

static float *adapted_h(const struct adapted *a, uint32_t r, uint32_t target)
{
    return (float *)cpu_row(a->call, a->operands + ADAPTED_WORK, r) +
           lora_first_rank(a->args->n_ranks, target);
}

void adapted_down_plain(const struct adapted *a, uint32_t r, const float *in)
{
    const struct step *step = a->call->step;
    uint32_t row = a->rows == ROWS_STEP ? r : step_outputs(step)[r];

    for (uint32_t i = 0; i < LORA_TARGETS; i++) {
        if (a->args->n_ranks[i] == 0)
            continue;
        struct lora_down d = { .in = in,
                               .a = cpu_base(a->call, operand_of(a, i, ADAPTED_A)),
                               .owners = cpu_base(a->call, operand_of(a, i, ADAPTED_OWNERS)),
                               .scales = (const float *)cpu_base(a->call, a->operands + ADAPTED_SCALES) +
                                         (size_t)step_slots(step)[row] * a->args->n_adapters,
                               .h = adapted_h(a, r, i),
                               .n_cols = cpu_weight(a->call, operand_of(a, i, ADAPTED_A))->n_cols,
                               .n_ranks = a->args->n_ranks[i] };
        down_plain(&d);
    }
}

void adapted_up_plain(const struct adapted *a, uint32_t r, const struct adapted_outputs *to)
{
    uint32_t b = operand_of(a, to->target, ADAPTED_B);

    if (a->args->n_ranks[to->target] == 0)
        return;
    struct lora_up u = { .h = adapted_h(a, r, to->target),
                         .b = (const float *)cpu_base(a->call, b) + to->first,
                         .out = to->out,
                         .n = to->n,
                         .stride = cpu_weight(a->call, b)->n_cols,
                         .n_ranks = a->args->n_ranks[to->target] };
    up_plain(&u);
}

static void lora_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    for (uint32_t i = first; i < last && phase == 0; i++) {
        struct lora_down d = down_of(call, i);
        down_plain(&d);
    }
    for (uint32_t i = first; i < last && phase == 1; i++) {
        struct lora_up u = up_of(call, i);
        up_plain(&u);
    }
}

static void lora_fast(const struct cpu_call *call, struct row_range range, const struct row_kernels *rows)
{
    for (uint32_t i = range.first; i < range.last && range.phase == 0; i++) {
        struct lora_down d = down_of(call, i);
        rows->lora_down(&d);
    }
    for (uint32_t i = range.first; i < range.last && range.phase == 1; i++) {
        struct lora_up u = up_of(call, i);
        rows->lora_up(&u);
    }
}
ROW_KERNELS(lora_fast)

const struct cpu_op cpu_op_lora = { .name = "lora",
                                    .by_rows = true,
                                    .plain = { lora_plan, lora_run },
                                    .fast = { ROW_CHOICES(lora_plan, lora_fast) } };
