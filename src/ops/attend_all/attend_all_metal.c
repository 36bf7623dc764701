// attend_all_metal.c - the operation's launch: a threadgroup for each row and head.
#include "ops/attend_all/attend_all.h"
#include "ops/metal_table.h"

void metal_plan_attend_all(struct metal_plan *p)
{
    const struct attend_all_args *args = (const struct attend_all_args *)p->command->args;
    struct metal_kernel kernel = { .name = "attend_all",
                                   .grid = { p->tape.max_rows, args->n_heads, 1 },
                                   .threads = 128 };

    metal_launch_add(p, &kernel, args, sizeof *args);
}
