// gated_norm_metal.c - the operation's launch: a simdgroup for each group of a row.
#include "ops/gated_norm/gated_norm.h"
#include "ops/metal_table.h"

void metal_plan_gated_norm(struct metal_plan *p)
{
    const struct gated_norm_args *args = (const struct gated_norm_args *)p->command->args;
    struct metal_kernel kernel = { .name = "gated_norm",
                                   .constants = { metal_has(p, GATED_SCALE) },
                                   .n_constants = 1,
                                   .grid = { (args->n_groups + 3) / 4, p->tape.max_rows, 1 },
                                   .threads = 128 };

    metal_launch_add(p, &kernel, args, sizeof *args);
}
