// delta_step_cpu.c - the definition: the parts' plain loops, a phase each. Where speed counts, the parts are
// recorded instead.
#include "ops/cpu_table.h"
#include "ops/delta_step/delta_step.h"

extern const struct cpu_op cpu_op_conv_step, cpu_op_scan, cpu_op_gated_norm;

static const struct cpu_op *const part_ops[DELTA_N_PARTS] = { &cpu_op_conv_step, &cpu_op_scan,
                                                              &cpu_op_gated_norm };

static void delta_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    struct command parts[DELTA_N_PARTS];

    delta_step_parts(call->command, parts);
    plan->n_phases = DELTA_N_PARTS;
    plan->local_bytes = 0;
    for (uint32_t i = 0; i < DELTA_N_PARTS; i++) {
        struct cpu_call part = *call;
        struct cpu_plan own = { 0 };
        part.command = &parts[i];
        part_ops[i]->plain.plan(&part, &own);
        plan->n_tiles[i] = own.n_tiles[0];
        plan->local_bytes = own.local_bytes > plan->local_bytes ? own.local_bytes : plan->local_bytes;
    }
}

static void delta_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    struct command parts[DELTA_N_PARTS];
    struct cpu_call part = *call;

    delta_step_parts(call->command, parts);
    part.command = &parts[phase];
    part_ops[phase]->plain.run(&part, 0, first, last);
}

const struct cpu_op cpu_op_delta_step = {
    .name = "delta_step", .by_rows = true, .parts_are_faster = true, .plain = { delta_plan, delta_run }
};
