// activate_metal.c - the operation's launch: a threadgroup for each row.
#include "ops/activate/activate.h"
#include "ops/metal_table.h"

void metal_plan_activate(struct metal_plan *p)
{
    const struct activate_args *args = (const struct activate_args *)p->command->args;
    uint32_t rows = args->rows == ROWS_STEP ? p->tape.max_rows : p->tape.max_outputs;
    struct metal_kernel kernel = { .name = "activate", .grid = { rows, 1, 1 }, .threads = 256 };
    metal_launch_add(p, &kernel, args, sizeof *args);
}
