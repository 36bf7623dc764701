// moe_simple_cuda.c - the launch for one row of the forms that moe_simple.cu has: no gate, biases or norm of
// the experts' own, one format, and all of a block's weights in its shared memory.
#include "gemm/cuda/gemm_plan.h"
#include "ops/cuda_table.h"
#include "ops/moe/moe_simple.h"

#define KERNEL(NAME, name, with) [QUANT_##NAME] = "moe_simple_" #name,
static const gemm_kernel_names row_names = { QUANT_BLOCK_FORMATS(KERNEL, ) };

// Divides n eights among the blocks. Returns the largest number of a block.
static u32 deal(u32 n, u32 n_blocks, u32 *each, u32 *more)
{
    *each = n / n_blocks;
    *more = n % n_blocks;
    return *each + (*more > 0);
}

static bool has(const struct cuda_plan *p, u32 operand)
{
    return cuda_at(p, operand) != 0;
}

// What moe_simple supports.
static bool suits(const struct cuda_plan *p, const struct moe_args *a)
{
    const struct weight *router = cuda_weight(p, MOE_ROUTER), *gate = cuda_weight(p, MOE_GATE);
    const struct route_rule *rule = &a->route.rule;
    u32 format = gate->format;

    if (a->own_norm || !a->adds || a->route.gain != 1 || has(p, MOE_EXPERT_SCALE) || a->experts.exact ||
        format <= QUANT_BF16 || !cuda_has_kernel(p, row_names[format]) ||
        cuda_weight(p, MOE_UP)->format != gate->format || cuda_weight(p, MOE_DOWN)->format != gate->format ||
        router->format != QUANT_F32)
        return false;
    for (u32 i = MOE_GATE_BIAS; i <= MOE_DOWN_BIAS; i++)
        if (has(p, i))
            return false;
    for (u32 i = MOE_SHARED_GATE; i <= MOE_SHARED_DOWN; i++)
        if (has(p, i) && cuda_weight(p, i)->format != format)
            return false;
    return !has(p, MOE_ROUTER_SHARED_GATE) && a->experts.n_shared % 32 == 0 && rule->n_groups == 1 &&
           (rule->scores == ROUTE_SIGMOID || !has(p, MOE_SELECT_BIAS)) &&
           a->route.n_experts <= MOE_MOST_EXPERTS && a->route.n_experts <= 2 * p->device.n_sms &&
           a->route.n_cols % 32 == 0 && a->route.n_cols / 8 <= MOE_THREADS && a->experts.n_ffn % 32 == 0;
}

// n rows plane by plane. Returns their bytes.
static u32 place_rows(struct moe_simple_rows *r, u32 format, u32 n_cols, u32 n)
{
    const u64 bytes[4] = { layout_quants_bytes(format, n_cols), layout_high_bytes(format, n_cols),
                           layout_scales_bytes(format, n_cols), layout_deltas_bytes(format, n_cols) };

    r->all = 0;
    for (u32 i = 0; i < 4; i++) {
        r->plane[i] = n * r->all;
        r->row[i] = (u32)bytes[i];
        r->all += (u32)bytes[i];
    }
    return n * r->all;
}

// The parts of each block and their places in shared memory. Returns the bytes; 0: too much for a block.
static u32 place(const struct cuda_plan *p, struct moe_simple_params *m, u32 n_blocks)
{
    u32 format = m->w_gate.format, n_cols = m->route.n_cols, n_slots = m->route.n_slots;
    u32 pairs = MOE_GROUP * deal(n_slots * m->n_ffn / MOE_GROUP, n_blocks, &m->pair_groups, &m->more_pairs),
        shared = MOE_GROUP * deal(m->n_shared / MOE_GROUP, n_blocks, &m->shared_groups, &m->more_shared),
        columns = MOE_GROUP * deal(n_cols / MOE_GROUP, n_blocks, &m->column_groups, &m->more_columns);

    m->shared_rounds = divide_up(shared, MOE_ROUND_PAIRS);
    m->n_rounds = m->shared_rounds + divide_up(pairs, MOE_ROUND_PAIRS);
    m->round_bytes = place_rows(&m->up, format, n_cols, MOE_ROUND_PAIRS);
    m->slot_bytes = place_rows(&m->down, format, m->n_ffn, columns);
    u32 shared_bytes = m->n_shared ? place_rows(&m->shared_down, format, m->n_shared, columns) : 0;
    u64 rounds = (u64)m->n_rounds * 2 * m->round_bytes, hidden = moe_row_bytes(m->n_hidden);
    u64 down = rounds > hidden ? rounds : hidden, shared_down = down + (u64)n_slots * m->slot_bytes,
        row = shared_down + shared_bytes, state = row + moe_row_bytes(n_cols);
    if (m->n_rounds > MOE_MOST_ROUNDS || state + MOE_STATE > p->device.shared_bytes)
        return 0;
    m->down_at = (u32)down;
    m->shared_down_at = (u32)shared_down;
    m->row_at = (u32)row;
    m->state_at = (u32)state;
    return (u32)state + MOE_STATE;
}

// Plans one launch, if moe_simple supports this command.
bool moe_plan_simple(struct cuda_plan *p, const struct moe_args *a)
{
    u32 n_groups = a->experts.n_slots * a->experts.n_ffn / MOE_GROUP;
    u32 n_blocks = n_groups < p->device.n_sms ? n_groups : p->device.n_sms; // each block has some
    struct moe_simple_params m = { .in = cuda_at(p, MOE_IN),
                                   .norm = cuda_at(p, MOE_NORM),
                                   .router = cuda_at(p, MOE_ROUTER),
                                   .router_bias = cuda_at(p, MOE_ROUTER_BIAS),
                                   .select_bias = cuda_at(p, MOE_SELECT_BIAS),
                                   .out = cuda_at(p, MOE_OUT),
                                   .ids = moe_ids_at(p),
                                   .w_gate = weight_layout_of(p, MOE_GATE),
                                   .w_up = weight_layout_of(p, MOE_UP),
                                   .w_down = weight_layout_of(p, MOE_DOWN),
                                   .w_shared_gate = weight_layout_of(p, MOE_SHARED_GATE),
                                   .w_shared_up = weight_layout_of(p, MOE_SHARED_UP),
                                   .w_shared_down = weight_layout_of(p, MOE_SHARED_DOWN),
                                   .route = a->route,
                                   .n_ffn = a->experts.n_ffn,
                                   .n_shared = a->experts.n_shared,
                                   .n_hidden = a->experts.n_slots * a->experts.n_ffn + a->experts.n_shared,
                                   .activation = a->experts.activation,
                                   .limit = a->experts.limit,
                                   .inverse_cols = 1.0f / (f32)a->route.n_cols };
    u32 shared = suits(p, a) && a->route.n_experts <= 2 * n_blocks ? place(p, &m, n_blocks) : 0;

    if (!shared)
        return false;
    while (m.rank_log2 < 5 && a->route.n_experts << (m.rank_log2 + 1) <= MOE_THREADS)
        m.rank_log2++;
    m.hidden = p->counters_at;
    m.logits = m.hidden + (u64)m.n_hidden * 2;
    m.arrived = m.logits + (u64)a->route.n_experts * MOE_LOGIT_WORDS * sizeof(u32);
    p->counters_bytes = m.arrived + sizeof(u32) - p->counters_at;
    cuda_launch_add(p, row_names[m.w_gate.format],
                    (struct cuda_shape){ { n_blocks, 1, 1 }, MOE_THREADS, shared }, &m, sizeof m);
    return true;
}
