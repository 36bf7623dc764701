// latent_block_cpu.c - the definition: the parts' plain loops, one after the other. Where speed counts, the
// parts are recorded instead.
#include "ops/cpu_table.h"
#include "ops/latent_block/latent_block.h"

static void block_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    struct command parts[LATENT_BLOCK_N_PARTS];

    latent_block_parts(call->command, parts);
    cpu_parts_plan(call, parts, LATENT_BLOCK_N_PARTS, plan);
}

static void block_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    struct command parts[LATENT_BLOCK_N_PARTS];

    (void)phase, (void)first, (void)last;
    latent_block_parts(call->command, parts);
    cpu_parts_run(call, parts, LATENT_BLOCK_N_PARTS);
}

const struct cpu_op cpu_op_latent_block = { .name = "latent_block",
                                            .parts_are_faster = true,
                                            .plain = { block_plan, block_run } };
