// parts_cpu.c - operations that are others in turn, on a CPU: the plain loops of their parts define them, in
// one tile, since a part may read all that the one before it writes. Where speed counts, the parts are
// recorded instead.
#include "ops/cpu_table.h"
#include "ops/parts.h"

static struct cpu_plan part_plan(const struct cpu_call *part)
{
    struct cpu_plan plan = { 0 };

    cpu_table.ops[part->command->op]->plain.plan(part, &plan);
    return plan;
}

static void parts_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    struct command parts[MOST_PARTS];
    uint32_t n = parts_of(call->command, parts);
    struct cpu_call part = *call;

    plan->n_phases = 1;
    plan->n_tiles[0] = 1;
    plan->local_bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        part.command = &parts[i];
        size_t bytes = part_plan(&part).local_bytes;
        plan->local_bytes = bytes > plan->local_bytes ? bytes : plan->local_bytes;
    }
}

static void parts_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    struct command parts[MOST_PARTS];
    uint32_t n = parts_of(call->command, parts);
    struct cpu_call part = *call;

    (void)phase, (void)first, (void)last;
    for (uint32_t i = 0; i < n; i++) {
        part.command = &parts[i];
        struct cpu_plan plan = part_plan(&part);
        for (uint32_t of_part = 0; of_part < plan.n_phases; of_part++)
            cpu_table.ops[part.command->op]->plain.run(&part, of_part, 0, plan.n_tiles[of_part]);
    }
}

#define BY_PARTS(op)                                              \
    const struct cpu_op cpu_op_##op = { .name = #op,              \
                                        .parts_are_faster = true, \
                                        .plain = { parts_plan, parts_run } }
BY_PARTS(attend_block);
BY_PARTS(latent_block);
BY_PARTS(latent_prompt);
BY_PARTS(latent_qk);
