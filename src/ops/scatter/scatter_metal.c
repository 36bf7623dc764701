// scatter_metal.c - the operation's launch: a threadgroup for each output row.
#include "ops/metal_table.h"
#include "ops/scatter/scatter.h"

void metal_plan_scatter(struct metal_plan *p)
{
    struct metal_kernel kernel = { .name = "scatter", .grid = { p->tape.max_outputs, 1, 1 }, .threads = 256 };
    metal_launch_add(p, &kernel, p->command->args, sizeof(struct scatter_args));
}
