// moe_cpu.c - the definition: the parts' plain loops, one after the other. Where speed counts, the parts
// are recorded instead.
#include "ops/cpu_table.h"
#include "ops/moe/moe.h"
#include "ops/rows.h"

extern const struct cpu_op cpu_op_route, cpu_op_rmsnorm, cpu_op_experts_up, cpu_op_experts_down;

static const struct cpu_op *const part_ops[MOE_N_PARTS] = { &cpu_op_route, &cpu_op_rmsnorm,
                                                            &cpu_op_experts_up, &cpu_op_experts_down };

static struct cpu_call part_call(const struct cpu_call *call, const struct command *part)
{
    struct cpu_call c = *call;

    c.command = part;
    return c;
}

static void moe_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    struct command parts[MOE_N_PARTS];
    size_t most = 0;

    moe_parts(call->command, parts);
    for (uint32_t i = 0; i < MOE_N_PARTS; i++) {
        struct cpu_call part = part_call(call, &parts[i]);
        if (parts[i].n_operands > 0)
            part_ops[i]->plain.plan(&part, plan);
        most = plan->local_bytes > most ? plan->local_bytes : most;
    }
    plan_rows(call, plan);
    plan->local_bytes = most;
}

static void moe_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    struct command parts[MOE_N_PARTS];

    moe_parts(call->command, parts);
    for (uint32_t i = 0; i < MOE_N_PARTS; i++) {
        struct cpu_call part = part_call(call, &parts[i]);
        if (parts[i].n_operands > 0)
            part_ops[i]->plain.run(&part, phase, first, last);
    }
}

const struct cpu_op cpu_op_moe = {
    .name = "moe", .by_rows = true, .parts_are_faster = true, .plain = { moe_plan, moe_run }
};
