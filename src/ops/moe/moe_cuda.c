// moe_cuda.c - the operation's launches: for one row moe_row, where the weights that a block asks for fit its
// shared memory, at least in turns; for few rows those of moe_few_cuda.c, for many those of moe_many_cuda.c;
// else the parts'.
#include "gemm/cuda/gemm_plan.h"
#include "ops/cuda_table.h"
#include "ops/moe/moe_cuda.h"

// By the format of gate and up; down and the shared expert's down may be in another one.
#define KERNEL(NAME, name, with) [QUANT_##NAME] = "moe_row_" #name,
static const gemm_kernel_names row_names = { QUANT_BLOCK_FORMATS(KERNEL, ) };
static const gemm_kernel_names mixed_names = {
    [QUANT_Q4_K] = "moe_row_q4_k_q6_k", [QUANT_Q5_K] = "moe_row_q5_k_q6_k"
};

u32 moe_deal(u32 n, u32 n_blocks, u32 *each, u32 *more)
{
    *each = n / n_blocks;
    *more = n % n_blocks;
    return *each + (*more > 0);
}

static bool has(const struct cuda_plan *p, u32 operand)
{
    return cuda_at(p, operand) != 0;
}

static const char *kernel_of(const struct cuda_plan *p)
{
    u32 up = cuda_weight(p, MOE_GATE)->format, down = cuda_weight(p, MOE_DOWN)->format;
    const char *name = down == up ? row_names[up] : down == QUANT_Q6_K ? mixed_names[up] : NULL;

    return name && cuda_has_kernel(p, name) ? name : NULL;
}

static bool formats_suit(const struct cuda_plan *p)
{
    u32 up = cuda_weight(p, MOE_GATE)->format, down = cuda_weight(p, MOE_DOWN)->format;

    return cuda_weight(p, MOE_ROUTER)->format == QUANT_F32 && cuda_weight(p, MOE_UP)->format == up &&
           up > QUANT_BF16 && down > QUANT_BF16 &&
           (!has(p, MOE_SHARED_GATE) ||
            (cuda_weight(p, MOE_SHARED_GATE)->format == up && cuda_weight(p, MOE_SHARED_UP)->format == up &&
             cuda_weight(p, MOE_SHARED_DOWN)->format == down));
}

bool moe_suits(const struct cuda_plan *p, const struct moe_args *a)
{
    const struct route_rule *rule = &a->route.rule;

    return !a->experts.exact && formats_suit(p) && a->experts.n_shared % 32 == 0 && rule->n_groups == 1 &&
           (rule->scores == ROUTE_SIGMOID || !has(p, MOE_SELECT_BIAS)) &&
           a->route.n_experts <= MOE_MOST_EXPERTS && a->route.n_cols % 32 == 0 &&
           a->route.n_cols / 8 <= MOE_THREADS && a->experts.n_ffn % 32 == 0;
}

u32 moe_place_rows(struct moe_rows *r, u32 format, u32 n_cols, u32 n)
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

// What each block has of everything. Returns the bytes of its part of the shared expert's down.
static u32 deal_all(struct moe_params *m, u32 n_blocks)
{
    u32 format = m->w_gate.format, n_cols = m->route.n_cols, n_shared = m->n_shared / MOE_ROUND_PAIRS;

    m->slot_rounds = m->n_ffn / MOE_ROUND_PAIRS;
    moe_deal(m->route.n_slots * m->slot_rounds, n_blocks, &m->rounds, &m->more_rounds);
    moe_deal(n_shared, n_blocks, &m->shared_rounds, &m->more_shared);
    u32 columns = MOE_GROUP * moe_deal(n_cols / MOE_GROUP, n_blocks, &m->column_groups, &m->more_columns);
    // the first blocks have one more of the slots' rounds, the last ones one more of the shared expert's
    m->n_rounds = m->rounds + m->shared_rounds +
                  (m->more_rounds + m->more_shared > n_blocks ? 2 : m->more_rounds + m->more_shared > 0);
    m->at.stage_bytes = 2 * moe_place_rows(&m->up, format, n_cols, MOE_ROUND_PAIRS);
    m->at.slot_bytes = moe_place_rows(&m->down, m->w_down.format, m->n_ffn, columns);
    return m->n_shared ? moe_place_rows(&m->shared_down, m->w_down.format, m->n_shared, columns) : 0;
}

// The last round whose weights lie in the first `end` bytes.
static u32 last_round(const struct moe_params *m, u32 end)
{
    u32 last = 0;

    for (u32 i = 0; i < m->n_rounds; i++)
        last = i % m->at.n_stages * m->at.stage_bytes < end ? i : last;
    return last;
}

// Rounds take turns: hidden numbers have a place of their own behind them. False: there is not room enough.
static bool take_turns(struct moe_params *m, u32 shared_bytes, u32 room)
{
    struct moe_places *at = &m->at;
    u32 n_slots = m->route.n_slots, hidden = moe_row_bytes(m->n_hidden), fixed = hidden + shared_bytes;

    if (room < fixed + at->slot_bytes + 2 * at->stage_bytes)
        return false;
    at->n_stages = (room - fixed - at->slot_bytes) / at->stage_bytes;
    at->n_stages = at->n_stages < m->n_rounds ? at->n_stages : m->n_rounds;
    at->hidden_at = at->n_stages * at->stage_bytes;
    at->shared_at = at->hidden_at + hidden;
    at->own_at = at->shared_at + shared_bytes;
    at->own_slots = (room - at->own_at) / at->slot_bytes;
    at->own_slots = at->own_slots < n_slots ? at->own_slots : n_slots;
    at->others_at = 0 - at->own_slots * at->slot_bytes;
    at->turns = true;
    at->row_at = at->own_at + at->own_slots * at->slot_bytes;
    for (u32 j = 0; j < n_slots - at->own_slots; j++)
        for (u32 i = last_round(m, (j + 1) * at->slot_bytes); i < m->n_rounds; i++)
            at->free_slots[i] = (u8)(j + 1);
    return (n_slots - at->own_slots) * at->slot_bytes <= at->hidden_at;
}

// The places in shared memory. Returns the bytes; 0: too much for a block.
static u32 place(struct moe_params *m, u32 n_blocks, u32 most)
{
    struct moe_places *at = &m->at;

    u32 shared_bytes = deal_all(m, n_blocks), row = moe_row_bytes(m->route.n_cols),
        hidden = moe_row_bytes(m->n_hidden);
    u64 rounds = (u64)m->n_rounds * at->stage_bytes, slots = (u64)m->route.n_slots * at->slot_bytes;
    u64 all = (rounds > hidden ? rounds : hidden) + slots + shared_bytes;
    if (m->n_rounds > MOE_MOST_ROUNDS || m->column_groups >= MOE_MOST_COLUMNS / MOE_GROUP ||
        most < row + MOE_STATE)
        return 0;
    most -= row + MOE_STATE;
    if (all <= most) {
        at->n_stages = m->n_rounds;
        at->own_slots = m->route.n_slots;
        at->own_at = (u32)(all - slots - shared_bytes);
        at->shared_at = at->own_at + (u32)slots;
        at->row_at = (u32)all;
    } else if (!take_turns(m, shared_bytes, most)) {
        return 0;
    }
    at->state_at = at->row_at + row;
    return at->state_at + MOE_STATE;
}

u64 moe_ids_at(struct cuda_plan *p)
{
    const struct command *whole = p->command;
    struct command parts[MOE_N_PARTS];

    moe_parts(whole, parts);
    p->command = &parts[MOE_ROUTE];
    u64 at = cuda_at(p, ROUTE_IDS);
    p->command = whole;
    return at;
}

struct moe_params moe_params_of(struct cuda_plan *p, const struct moe_args *a)
{
    return (struct moe_params){ .in = cuda_at(p, MOE_IN),
                                .norm = cuda_at(p, MOE_NORM),
                                .expert_norm = cuda_at(p, MOE_EXPERT_NORM),
                                .router = cuda_at(p, MOE_ROUTER),
                                .router_bias = cuda_at(p, MOE_ROUTER_BIAS),
                                .select_bias = cuda_at(p, MOE_SELECT_BIAS),
                                .shared_gate = cuda_at(p, MOE_ROUTER_SHARED_GATE),
                                .expert_scale = cuda_at(p, MOE_EXPERT_SCALE),
                                .gate_bias = cuda_at(p, MOE_GATE_BIAS),
                                .up_bias = cuda_at(p, MOE_UP_BIAS),
                                .down_bias = cuda_at(p, MOE_DOWN_BIAS),
                                .out = cuda_at(p, MOE_OUT),
                                .ids = moe_ids_at(p),
                                .w_gate = weight_layout_of(p, MOE_GATE),
                                .w_up = weight_layout_of(p, MOE_UP),
                                .w_down = weight_layout_of(p, MOE_DOWN),
                                .w_shared_gate = weight_layout_of(p, MOE_SHARED_GATE),
                                .w_shared_up = weight_layout_of(p, MOE_SHARED_UP),
                                .w_shared_down = weight_layout_of(p, MOE_SHARED_DOWN),
                                .route = a->route,
                                .n_logits = a->route.n_experts + has(p, MOE_ROUTER_SHARED_GATE),
                                .n_ffn = a->experts.n_ffn,
                                .n_shared = a->experts.n_shared,
                                .n_hidden = a->experts.n_slots * a->experts.n_ffn + a->experts.n_shared,
                                .activation = a->experts.activation,
                                .limit = a->experts.limit,
                                .inverse_cols = 1.0f / (f32)a->route.n_cols,
                                .adds = a->adds };
}

// Plans one launch, if moe_row supports this command.
static bool plan_row(struct cuda_plan *p, const struct moe_args *a)
{
    u32 n_rounds = a->experts.n_slots * a->experts.n_ffn / MOE_ROUND_PAIRS;
    u32 n_blocks = n_rounds < p->device.n_sms ? n_rounds : p->device.n_sms; // each block has some

    if (!moe_suits(p, a) || !kernel_of(p))
        return false;
    struct moe_params m = moe_params_of(p, a);
    u32 shared = m.n_logits <= 2 * n_blocks ? place(&m, n_blocks, p->device.shared_bytes) : 0;
    if (!shared)
        return false;
    m.hidden = p->counters_at;
    m.logits = m.hidden + (u64)m.n_hidden * 2;
    m.arrived = m.logits + (u64)m.n_logits * MOE_LOGIT_WORDS * sizeof(u32);
    p->counters_bytes = m.arrived + sizeof(u32) - p->counters_at;
    cuda_launch_add(p, kernel_of(p), (struct cuda_shape){ { n_blocks, 1, 1 }, MOE_THREADS, shared }, &m,
                    sizeof m);
    return true;
}

void cuda_plan_moe(struct cuda_plan *p)
{
    const struct moe_args *a = (const struct moe_args *)p->command->args;

    // The first that takes it.
    if (p->tape.max_rows == 1 && plan_row(p, a))
        return;
    if (!moe_plan_few(p, a) && !moe_plan_many(p, a))
        cuda_plan_parts(p);
}
