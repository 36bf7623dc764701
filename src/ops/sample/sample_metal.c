// sample_metal.c - the operation's launches: many threadgroups scan the logits, then one a row decides.
#include "ops/sample/sample_metal.h"
#include "ops/metal_table.h"

void metal_plan_sample(struct metal_plan *p)
{
    struct sample_metal_args args = { *(const struct sample_args *)p->command->args, 0, 0 };
    uint32_t outputs = p->tape.max_outputs,
             parts = (args.sample.n_tokens + 4 * SCAN_THREADS - 1) / (4 * SCAN_THREADS);

    args.n_parts = parts < MOST_PARTS ? parts : MOST_PARTS;
    p->private_bytes = (uint64_t)outputs * args.n_parts * sizeof(struct sample_part);
    metal_launch_add(p,
                     &(struct metal_kernel){ .name = "sample_scan",
                                             .grid = { args.n_parts, outputs, 1 },
                                             .threads = SCAN_THREADS },
                     &args, sizeof args);
    metal_launch_add(
        p,
        &(struct metal_kernel){ .name = "sample_draw", .grid = { outputs, 1, 1 }, .threads = DRAW_THREADS },
        &args, sizeof args);
}
