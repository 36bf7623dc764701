// angles_metal.c - the operation's launch: a threadgroup for each row.
#include "ops/angles/angles.h"
#include "ops/metal_table.h"

void metal_plan_angles(struct metal_plan *p)
{
    struct metal_kernel kernel = { .name = "angles", .grid = { p->tape.max_rows, 1, 1 }, .threads = 64 };
    metal_launch_add(p, &kernel, p->command->args, sizeof(struct angles_args));
}
