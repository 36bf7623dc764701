// rope_store_metal.c - the operation's launch: a simdgroup for each head of q, k and v.
#include "ops/rope_store/rope_store_metal.h"
#include "ops/metal_table.h"

void metal_plan_rope_store(struct metal_plan *p)
{
    const struct rope_store_args *args = (const struct rope_store_args *)p->command->args;
    uint32_t n_heads = args->n_heads + 2 * args->pages.n_kv_heads;
    struct metal_kernel kernel = { .name = "rope_store",
                                   .n_constants = HEADS_N_CONSTANTS,
                                   .grid = { (n_heads + HEADS_IN_GROUP - 1) / HEADS_IN_GROUP,
                                             p->tape.max_rows, 1 },
                                   .threads = 32 * HEADS_IN_GROUP };

    kernel.constants[HEADS_C_Q_NORM] = metal_has(p, ROPE_Q_NORM);
    kernel.constants[HEADS_C_K_NORM] = metal_has(p, ROPE_K_NORM);
    metal_launch_add(p, &kernel, args, sizeof *args);
}
