// layernorm_metal.c - the operation's launch: a threadgroup for each row.
#include "ops/layernorm/layernorm.h"
#include "ops/metal_table.h"

void metal_plan_layernorm(struct metal_plan *p)
{
    const struct layernorm_args *args = (const struct layernorm_args *)p->command->args;
    uint32_t rows = args->rows == ROWS_STEP ? p->tape.max_rows : p->tape.max_outputs;

    metal_launch_add(p, &(struct metal_kernel){ .name = "layernorm", .grid = { rows, 1, 1 }, .threads = 256 },
                     args, sizeof *args);
}
