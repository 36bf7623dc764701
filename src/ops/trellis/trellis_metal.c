// trellis_metal.c - the operation's two dispatches.
#include "base/divide.h"
#include "ops/metal_table.h"
#include "ops/trellis/trellis.h"
#include "ops/trellis/trellis_metal.h"

void metal_plan_trellis(struct metal_plan *p)
{
    const struct trellis_args *args = (const struct trellis_args *)p->command->args;
    uint32_t rows = args->rows == ROWS_STEP ? p->tape.max_rows : p->tape.max_outputs;
    struct metal_kernel kernel = {
        .name = "trellis_turn_rows",
        .constants = { args->bits, args->codebook, metal_has(p, MATMUL_BIAS), metal_has(p, MATMUL_ADD) },
        .n_constants = 4,
        .grid = { divide_up(exl3_padded(args->n_cols), TRELLIS_MSL_TURNS * EXL3_BLOCK), rows, 1 },
        .threads = TRELLIS_MSL_TURNS * 32,
    };

    metal_launch_add(p, &kernel, args, sizeof *args);
    kernel.name = rows == 1 ? "trellis_one" : "trellis_eight";
    kernel.grid[0] = exl3_padded(args->n_rows) / EXL3_BLOCK;
    kernel.grid[1] = divide_up(rows, rows == 1 ? 1 : TRELLIS_MSL_ROWS);
    kernel.threads = TRELLIS_MSL_THREADS;
    metal_launch_add(p, &kernel, args, sizeof *args);
}
