// rmsnorm_metal.c - the operation's launch: a threadgroup for each group of each row.
#include "ops/metal_table.h"
#include "ops/rmsnorm/rmsnorm.h"

void metal_plan_rmsnorm(struct metal_plan *p)
{
    const struct rmsnorm_args *args = (const struct rmsnorm_args *)p->command->args;
    uint32_t rows = args->rows == ROWS_STEP ? p->tape.max_rows : p->tape.max_outputs;
    struct metal_kernel kernel = { .name = "rmsnorm",
                                   .constants = { metal_has(p, RMSNORM_SCALE), metal_has(p, RMSNORM_ADD) },
                                   .n_constants = 2,
                                   .grid = { rows, args->n_groups, 1 },
                                   .threads = 256 };

    metal_launch_add(p, &kernel, args, sizeof *args);
}
