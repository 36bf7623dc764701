// moe.c - records the operation, or its parts; see moe.h.
#include "ops/moe/moe.h"
#include "ops/matmul/matmul.h"
#include "ops/ops.h"
#include "ops/parts.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/trellis/trellis.h"

// What the parts hand on, and a workspace for one part at a time, in the order in which they lie in the
// operation's own.
enum { NORMED, EXPERTS_IN, IDS, WEIGHTS, LOGITS, HIDDEN, WORK, N_PLACES };

static uint32_t work_cols(const struct experts_args *e)
{
    uint32_t up = e->n_cols + 192; // rows of experts_up, packed for two kernels at most
    uint32_t down = experts_down_work_cols(e->n_slots, e->n_ffn, e->n_shared, e->n_cols);

    return up > down ? up : down;
}

static uint32_t place_cols(const struct moe_args *a, uint32_t place)
{
    const struct experts_args *e = &a->experts;
    const uint32_t cols[N_PLACES] = {
        [NORMED] = e->n_cols,    [EXPERTS_IN] = a->own_norm ? e->n_cols : 0,
        [IDS] = e->n_slots,      [WEIGHTS] = e->n_slots + 1,
        [LOGITS] = e->n_experts, [HIDDEN] = experts_hidden_cols(e->n_slots, e->n_ffn, e->n_shared),
        [WORK] = work_cols(e),
    };
    return cols[place];
}

// Numbers of a row before a place: each begins at a multiple of 64.
static uint32_t place_at(const struct moe_args *a, uint32_t place)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < place; i++)
        at += (place_cols(a, i) + 63) / 64 * 64;
    return at;
}

uint32_t moe_work_cols(const struct moe_args *args)
{
    return place_at(args, N_PLACES);
}

// What the operation can be: the parts read one another's results, and nothing else reads them.
static bool parts_fit(const struct tape *t, const struct moe *m)
{
    bool own_norm = m->expert_norm != NULL;

    return !tape_limits(t)->invariant && tape_fuses(t, OP_moe) && !trellis_multiplies(m->up.gate) &&
           own_norm == (m->up.in.id != m->route.normed.id) &&
           (!m->down.add.id || m->down.add.id == m->route.in.id);
}

bool op_moe(struct tape *t, const struct moe *m)
{
    const struct experts_up *up = &m->up;
    const struct experts_down *down = &m->down;
    struct moe_args args = { .own_norm = m->expert_norm != NULL, .adds = down->add.id != 0 };
    struct experts_args of_up;

    if (!parts_fit(t, m) || !route_check(t, &m->route, &args.route) || !experts_up_check(t, up, &of_up) ||
        !experts_down_check(t, down, &args.experts) ||
        !matmul_vector_fits(t, "moe", m->expert_norm, args.route.n_cols))
        return false;
    args.experts.activation = of_up.activation;
    args.experts.limit = of_up.limit;
    const struct weight *const weights[] = {
        m->route.norm, m->route.router, m->route.bias, m->route.select_bias, m->route.shared_gate,
        up->gate,      up->up,          down->down,    up->gate_bias,        up->up_bias,
        down->bias,    up->shared_gate, up->shared_up, down->shared,         m->route.expert_scale,
        m->expert_norm
    };
    struct tensor work = tape_tensor(t, moe_work_cols(&args), ROWS_STEP);
    struct command *c = tape_add(t, OP_moe, "moe", &args, sizeof args);

    tape_reads(t, c, m->route.in);
    for (uint32_t i = 0; i < sizeof weights / sizeof *weights; i++)
        tape_reads_weight(t, c, weights[i]);
    tape_works_in(t, c, work);
    tape_writes(t, c, down->out);
    return true;
}

// An operand of a part that is an operand of the whole.
static struct operand passed(const struct command *c, uint32_t operand)
{
    return c->operands[operand];
}

// An operand of a part that lies in the workspace, with all rows side by side.
static struct operand placed(const struct command *c, uint32_t place, bool writes)
{
    const struct moe_args *a = (const struct moe_args *)c->args;
    struct operand o = c->operands[MOE_WORK];
    uint64_t n_rows = o.bytes / o.row_bytes;

    o.offset += place_at(a, place) * n_rows * sizeof(float);
    o.row_bytes = (uint64_t)place_cols(a, place) * sizeof(float);
    o.bytes = o.row_bytes * n_rows;
    o.writes = writes;
    return o;
}

static void route_part(const struct command *c, struct command *part)
{
    const struct moe_args *a = (const struct moe_args *)c->args;

    *part = PART_OF(c, route, a->route);
    part->n_operands = ROUTE_EXPERT_SCALE + 1;
    part->operands[ROUTE_IN] = passed(c, MOE_IN);
    part->operands[ROUTE_NORM] = passed(c, MOE_NORM);
    part->operands[ROUTE_ROUTER] = passed(c, MOE_ROUTER);
    part->operands[ROUTE_BIAS] = passed(c, MOE_ROUTER_BIAS);
    part->operands[ROUTE_SELECT_BIAS] = passed(c, MOE_SELECT_BIAS);
    part->operands[ROUTE_SHARED_GATE] = passed(c, MOE_ROUTER_SHARED_GATE);
    part->operands[ROUTE_WORK] = placed(c, LOGITS, true);
    part->operands[ROUTE_NORMED] = placed(c, NORMED, true);
    part->operands[ROUTE_IDS] = placed(c, IDS, true);
    part->operands[ROUTE_WEIGHTS] = placed(c, WEIGHTS, true);
    part->operands[ROUTE_EXPERT_SCALE] = passed(c, MOE_EXPERT_SCALE);
}

static void norm_part(const struct command *c, struct command *part)
{
    const struct moe_args *a = (const struct moe_args *)c->args;
    struct rmsnorm_args args = {
        .n_cols = a->route.n_cols, .n_groups = 1, .eps = a->route.eps, .rows = ROWS_STEP, .gain = 1
    };

    *part = PART_OF(c, rmsnorm, args);
    if (!a->own_norm)
        return;
    part->n_operands = RMSNORM_OUT + 1;
    part->operands[RMSNORM_IN] = passed(c, MOE_IN);
    part->operands[RMSNORM_SCALE] = passed(c, MOE_EXPERT_NORM);
    part->operands[RMSNORM_OUT] = placed(c, EXPERTS_IN, true);
}

static void up_part(const struct command *c, struct command *part)
{
    const struct moe_args *a = (const struct moe_args *)c->args;

    *part = PART_OF(c, experts_up, a->experts);
    part->n_operands = EXPERTS_UP_OUT + 1;
    part->operands[EXPERTS_UP_IN] = placed(c, a->own_norm ? EXPERTS_IN : NORMED, false);
    part->operands[EXPERTS_UP_IDS] = placed(c, IDS, false);
    part->operands[EXPERTS_UP_GATE] = passed(c, MOE_GATE);
    part->operands[EXPERTS_UP_UP] = passed(c, MOE_UP);
    part->operands[EXPERTS_UP_GATE_BIAS] = passed(c, MOE_GATE_BIAS);
    part->operands[EXPERTS_UP_UP_BIAS] = passed(c, MOE_UP_BIAS);
    part->operands[EXPERTS_UP_SHARED_GATE] = passed(c, MOE_SHARED_GATE);
    part->operands[EXPERTS_UP_SHARED_UP] = passed(c, MOE_SHARED_UP);
    part->operands[EXPERTS_UP_WORK] = placed(c, WORK, true);
    part->operands[EXPERTS_UP_OUT] = placed(c, HIDDEN, true);
}

static void down_part(const struct command *c, struct command *part)
{
    const struct moe_args *a = (const struct moe_args *)c->args;

    *part = PART_OF(c, experts_down, a->experts);
    part->n_operands = EXPERTS_DOWN_OUT + 1;
    part->operands[EXPERTS_DOWN_IN] = placed(c, HIDDEN, false);
    part->operands[EXPERTS_DOWN_IDS] = placed(c, IDS, false);
    part->operands[EXPERTS_DOWN_WEIGHTS] = placed(c, WEIGHTS, false);
    part->operands[EXPERTS_DOWN_DOWN] = passed(c, MOE_DOWN);
    part->operands[EXPERTS_DOWN_BIAS] = passed(c, MOE_DOWN_BIAS);
    part->operands[EXPERTS_DOWN_SHARED] = passed(c, MOE_SHARED_DOWN);
    if (a->adds)
        part->operands[EXPERTS_DOWN_ADD] = passed(c, MOE_IN);
    part->operands[EXPERTS_DOWN_WORK] = placed(c, WORK, true);
    part->operands[EXPERTS_DOWN_OUT] = passed(c, MOE_OUT);
}

void moe_parts(const struct command *c, struct command parts[MOE_N_PARTS])
{
    route_part(c, &parts[MOE_ROUTE]);
    norm_part(c, &parts[MOE_RMSNORM]);
    up_part(c, &parts[MOE_EXPERTS_UP]);
    down_part(c, &parts[MOE_EXPERTS_DOWN]);
}
