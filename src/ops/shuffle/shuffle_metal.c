// shuffle_metal.c - the operation's launch: a threadgroup for each output row.
#include "ops/metal_table.h"
#include "ops/shuffle/shuffle.h"

void metal_plan_shuffle(struct metal_plan *p)
{
    struct metal_kernel kernel = { .name = "shuffle", .grid = { p->tape.max_outputs, 1, 1 }, .threads = 256 };
    metal_launch_add(p, &kernel, p->command->args, sizeof(struct shuffle_args));
}
