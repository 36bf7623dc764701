// step_spread.c - see step_spread.h.
#include "engine/api/step_spread.h"
#include "base/mem.h"
#include "ops/moe/moe.h"
#include "ops/ops.h"
#include "ops/trellis_experts/trellis_experts.h"

STATIC_ASSERT((int)TRELLIS_EXPERTS_IDS == (int)EXPERTS_UP_IDS); // read below

bool step_spread_has(const struct command *c)
{
    return c->op == OP_experts_up || c->op == OP_trellis_experts || c->op == OP_moe;
}

static struct command experts_up_of(const struct command *c)
{
    struct command parts[MOE_N_PARTS];

    if (c->op != OP_moe)
        return *c;
    moe_parts(c, parts);
    return parts[MOE_EXPERTS_UP];
}

static struct expert_spread spread_of(const float *ids, uint32_t n_ids, uint32_t n_experts)
{
    struct expert_spread s = { .n = n_experts, .mean = (double)n_ids / n_experts };
    uint32_t rows[ROUTE_MAX_EXPERTS] = { 0 };

    for (uint32_t i = 0; i < n_ids; i++)
        rows[(uint32_t)ids[i] % n_experts]++;
    for (uint32_t i = 0; i < n_experts; i++) {
        s.n_used += rows[i] > 0;
        s.most = rows[i] > s.most ? rows[i] : s.most;
    }
    return s;
}

bool step_spread_read(const struct command *c, uint32_t n_rows, struct expert_spread *spread, struct err *err)
{
    const struct command up = experts_up_of(c);
    const struct experts_args *args = (const void *)up.args;
    const struct operand *ids = &up.operands[EXPERTS_UP_IDS];
    uint32_t n_ids = n_rows * args->n_slots;
    float *chosen = mem_alloc_array(n_ids, sizeof *chosen);
    CHECK(args->n_experts <= ROUTE_MAX_EXPERTS && n_ids * sizeof *chosen <= ids->bytes);
    bool ok = chosen ? buffer_read(ids->buffer, ids->offset, chosen, n_ids * sizeof *chosen, err)
                     : err_memory(err, "the ids of experts");

    if (ok)
        *spread = spread_of(chosen, n_ids, args->n_experts);
    mem_free(chosen);
    return ok;
}
