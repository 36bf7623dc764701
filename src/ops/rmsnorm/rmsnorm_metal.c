// rmsnorm_metal.c - the operation's launch: a threadgroup for each row.
#include "ops/metal_table.h"
#include "ops/rmsnorm/rmsnorm.h"

void metal_plan_rmsnorm(struct metal_plan *p)
{
    const struct rmsnorm_args *args = (const struct rmsnorm_args *)p->command->args;
    uint32_t rows = args->rows == ROWS_STEP ? p->tape.max_rows : p->tape.max_outputs;

    metal_launch_add(p, &(struct metal_kernel){ .name = "rmsnorm", .grid = { rows, 1, 1 }, .threads = 256 },
                     args, sizeof *args);
}
