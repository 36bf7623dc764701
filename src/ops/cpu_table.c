// cpu_table.c - gathers what the operations' folders offer the CPU.
#include "ops/cpu_table.h"
#include "gemm/cpu/pack.h"
#include "ops/ops.h"
#include "ops/parts.h"

#define OP(name) extern const struct cpu_op cpu_op_##name;
#include "ops/ops.def"
#undef OP

static const struct cpu_op *const ops[N_OPS] = {
#define OP(name) [OP_##name] = &cpu_op_##name,
#include "ops/ops.def"
#undef OP
};

const struct cpu_table cpu_table = { .ops = ops, .n_ops = N_OPS, .pack = gemm_pack };

static struct cpu_plan plan_of(const struct cpu_call *part)
{
    struct cpu_plan plan = { 0 };

    ops[part->command->op]->plain.plan(part, &plan);
    return plan;
}

void cpu_parts_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    struct command parts[MOST_PARTS];
    uint32_t n = parts_of(call->command, parts);
    struct cpu_call part = *call;

    plan->n_phases = 1;
    plan->n_tiles[0] = 1;
    plan->local_bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        part.command = &parts[i];
        size_t bytes = plan_of(&part).local_bytes;
        plan->local_bytes = bytes > plan->local_bytes ? bytes : plan->local_bytes;
    }
}

void cpu_parts_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    struct command parts[MOST_PARTS];
    uint32_t n = parts_of(call->command, parts);
    struct cpu_call part = *call;

    (void)phase, (void)first, (void)last;
    for (uint32_t i = 0; i < n; i++) {
        part.command = &parts[i];
        struct cpu_plan plan = plan_of(&part);
        for (uint32_t of_part = 0; of_part < plan.n_phases; of_part++)
            ops[part.command->op]->plain.run(&part, of_part, 0, plan.n_tiles[of_part]);
    }
}
