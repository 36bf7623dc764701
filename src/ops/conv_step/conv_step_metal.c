// conv_step_metal.c - the operation's launches: first all rows at once, which read the states, then a
// sequence's threads write them.
#include "ops/conv_step/conv_step.h"
#include "ops/metal_table.h"

void metal_plan_conv_step(struct metal_plan *p)
{
    const struct conv_step_args *args = (const struct conv_step_args *)p->command->args;
    struct metal_kernel kernel = { .name = "conv_step",
                                   .constants = { metal_has(p, CONV_BIAS) },
                                   .n_constants = 1,
                                   .grid = { (args->n_channels + 127) / 128, p->tape.max_rows, 1 },
                                   .threads = 128 };

    metal_launch_add(p, &kernel, args, sizeof *args);
    kernel.name = "conv_step_states";
    metal_launch_add(p, &kernel, args, sizeof *args);
}
