// temper_metal.c - the operation's launch: a threadgroup for each row.
#include "ops/metal_table.h"
#include "ops/temper/temper.h"

void metal_plan_temper(struct metal_plan *p)
{
    struct metal_kernel kernel = { .name = "temper", .grid = { p->tape.max_rows, 1, 1 }, .threads = 256 };
    metal_launch_add(p, &kernel, p->command->args, sizeof(struct temper_args));
}
