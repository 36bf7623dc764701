// activate_metal.c - the operation's launch: a threadgroup for each row.
#include "ops/activate/activate.h"
#include "ops/metal_table.h"

void metal_plan_activate(struct metal_plan *p)
{
    struct metal_kernel kernel = { .name = "activate", .grid = { p->tape.max_rows, 1, 1 }, .threads = 256 };
    metal_launch_add(p, &kernel, p->command->args, sizeof(struct activate_args));
}
