// attend_block_cpu.c - the definition: the parts' plain loops, one after the other. Where speed counts, the
// parts are recorded instead.
#include "ops/cpu_table.h"
#include "ops/attend_block/attend_block.h"

extern const struct cpu_op cpu_op_qkv, cpu_op_attend, cpu_op_matmul;

static const struct cpu_op *const part_ops[ATTEND_BLOCK_N_PARTS] = { &cpu_op_qkv, &cpu_op_attend,
                                                                     &cpu_op_matmul };

// One tile: a part reads all that the one before it writes.
static void block_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    struct command parts[ATTEND_BLOCK_N_PARTS];

    attend_block_parts(call->command, parts);
    plan->n_phases = 1;
    plan->n_tiles[0] = 1;
    plan->local_bytes = 0;
    for (uint32_t i = 0; i < ATTEND_BLOCK_N_PARTS; i++) {
        struct cpu_call part = *call;
        struct cpu_plan own = { 0 };
        part.command = &parts[i];
        part_ops[i]->plain.plan(&part, &own);
        plan->local_bytes = own.local_bytes > plan->local_bytes ? own.local_bytes : plan->local_bytes;
    }
}

static void block_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    struct command parts[ATTEND_BLOCK_N_PARTS];

    (void)phase, (void)first, (void)last;
    attend_block_parts(call->command, parts);
    for (uint32_t i = 0; i < ATTEND_BLOCK_N_PARTS; i++) {
        struct cpu_call part = *call;
        struct cpu_plan own = { 0 };
        part.command = &parts[i];
        part_ops[i]->plain.plan(&part, &own);
        for (uint32_t p = 0; p < own.n_phases; p++)
            part_ops[i]->plain.run(&part, p, 0, own.n_tiles[p]);
    }
}

const struct cpu_op cpu_op_attend_block = { .name = "attend_block",
                                            .parts_are_faster = true,
                                            .plain = { block_plan, block_run } };
