// embed_metal.c - the operation's launch: a threadgroup for each row.
#include "ops/embed/embed.h"
#include "ops/metal_table.h"

void metal_plan_embed(struct metal_plan *p)
{
    struct metal_kernel kernel = { .name = "embed",
                                   .constants = { metal_weight(p, EMBED_TABLE)->format },
                                   .n_constants = 1,
                                   .grid = { p->tape.max_rows, 1, 1 },
                                   .threads = 128 };
    metal_launch_add(p, &kernel, p->command->args, sizeof(struct embed_args));
}
