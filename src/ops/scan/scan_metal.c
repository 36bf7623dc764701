// scan_metal.c - the operation's launch: a threadgroup for each possible beginning of a sequence's rows and
// 32 columns of a head's state.
#include "ops/metal_table.h"
#include "ops/scan/scan.h"

void metal_plan_scan(struct metal_plan *p)
{
    const struct scan_args *args = (const struct scan_args *)p->command->args;
    struct metal_kernel kernel = { .name = args->d_k <= 128 ? "scan_rows" : "scan_rows_wide",
                                   .constants = { metal_has(p, SCAN_D) },
                                   .n_constants = 1,
                                   .grid = { args->n_heads * ((args->d_v + 31) / 32), p->tape.max_rows, 1 },
                                   .threads = 128 };

    metal_launch_add(p, &kernel, args, sizeof *args);
}
