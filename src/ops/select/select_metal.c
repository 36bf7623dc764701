// select_metal.c - the operation's launch: a threadgroup for each output row.
#include "ops/metal_table.h"
#include "ops/select/select.h"

void metal_plan_select(struct metal_plan *p)
{
    struct metal_kernel kernel = { .name = "select_rows",
                                   .grid = { p->tape.max_outputs, 1, 1 },
                                   .threads = 256 };
    metal_launch_add(p, &kernel, p->command->args, sizeof(struct select_args));
}
