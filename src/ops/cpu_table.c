// cpu_table.c - gathers what the operations' folders offer the CPU.
#include "ops/cpu_table.h"
#include "gemm/cpu/pack.h"
#include "ops/ops.h"

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

void cpu_parts_plan(const struct cpu_call *call, const struct command *parts, uint32_t n,
                    struct cpu_plan *plan)
{
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

void cpu_parts_run(const struct cpu_call *call, const struct command *parts, uint32_t n)
{
    struct cpu_call part = *call;

    for (uint32_t i = 0; i < n; i++) {
        part.command = &parts[i];
        struct cpu_plan plan = plan_of(&part);
        for (uint32_t phase = 0; phase < plan.n_phases; phase++)
            ops[part.command->op]->plain.run(&part, phase, 0, plan.n_tiles[phase]);
    }
}
