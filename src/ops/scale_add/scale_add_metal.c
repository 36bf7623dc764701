// scale_add_metal.c - the operation's launch: a threadgroup for each row.
#include "ops/metal_table.h"
#include "ops/scale_add/scale_add.h"

void metal_plan_scale_add(struct metal_plan *p)
{
    struct metal_kernel kernel = { .name = "scale_add", .grid = { p->tape.max_rows, 1, 1 }, .threads = 256 };
    metal_launch_add(p, &kernel, p->command->args, sizeof(struct scale_add_args));
}
