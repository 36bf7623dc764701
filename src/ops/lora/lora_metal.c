// lora_metal.c - the operation's two dispatches.
#include "base/divide.h"
#include "ops/lora/lora.h"
#include "ops/metal_table.h"

void metal_plan_lora(struct metal_plan *p)
{
    const struct lora_args *args = (const struct lora_args *)p->command->args;
    uint32_t rows = args->rows == ROWS_STEP ? p->tape.max_rows : p->tape.max_outputs;
    struct metal_kernel kernel = { .name = "lora_down",
                                   .grid = { divide_up(lora_most(args->n_ranks), 4), rows, args->n_targets },
                                   .threads = 128 };

    metal_launch_add(p, &kernel, args, sizeof *args);
    kernel.name = "lora_up";
    kernel.grid[0] = divide_up(lora_most(args->n_out), 256);
    kernel.threads = 256;
    metal_launch_add(p, &kernel, args, sizeof *args);
}
