// latent_qk_cpu.c - the definition: the parts' plain loops. Where speed counts, the parts are recorded
// instead.
#include "ops/cpu_table.h"
#include "ops/latent/latent.h"

extern const struct cpu_op cpu_op_latent_store, cpu_op_latent_project;

static const struct cpu_op *const part_ops[LATENT_QK_N_PARTS] = { &cpu_op_latent_store,
                                                                  &cpu_op_latent_project };

static void qk_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    struct command parts[LATENT_QK_N_PARTS];
    size_t most = 0;

    latent_qk_parts(call->command, parts);
    for (uint32_t i = 0; i < LATENT_QK_N_PARTS; i++) {
        struct cpu_call part = *call;
        part.command = &parts[i];
        part_ops[i]->plain.plan(&part, plan);
        most = plan->local_bytes > most ? plan->local_bytes : most;
    }
    plan->n_phases = 1;
    plan->n_tiles[0] = LATENT_QK_N_PARTS;
    plan->local_bytes = most;
}

// A tile is a part, with all of its own.
static void qk_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    struct command parts[LATENT_QK_N_PARTS];

    latent_qk_parts(call->command, parts);
    for (uint32_t i = first; i < last; i++) {
        struct cpu_call part = *call;
        struct cpu_plan plan = { 0 };
        part.command = &parts[i];
        part_ops[i]->plain.plan(&part, &plan);
        part_ops[i]->plain.run(&part, phase, 0, plan.n_tiles[0]);
    }
}

const struct cpu_op cpu_op_latent_qk = { .name = "latent_qk",
                                         .parts_are_faster = true,
                                         .plain = { qk_plan, qk_run } };
