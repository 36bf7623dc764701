// trellis_metal.c - the operation's two dispatches for each matrix: those of the same kind beside each other.
#include "base/divide.h"
#include "ops/metal_table.h"
#include "ops/trellis/trellis.h"
#include "ops/trellis/trellis_metal.h"

static void launch(struct metal_plan *p, uint32_t matrix, const char *name, uint32_t threads,
                   const uint32_t grid[2])
{
    const struct trellis_args *args = (const struct trellis_args *)p->command->args;
    uint32_t operands = matrix * TRELLIS_OPERANDS;
    struct metal_kernel kernel = { .name = name,
                                   .constants = { args->bits, args->codebook,
                                                  metal_has(p, operands + TRELLIS_BIAS),
                                                  metal_has(p, operands + TRELLIS_ADD) },
                                   .n_constants = 4,
                                   .grid = { grid[0], grid[1], 1 },
                                   .threads = threads,
                                   .beside = matrix > 0 };

    metal_launch_add(p, &kernel, args, sizeof *args);
}

void metal_plan_trellis(struct metal_plan *p)
{
    static const char *const turns[] = { "trellis_turn_0", "trellis_turn_1", "trellis_turn_2" },
                             *const one[] = { "trellis_one_0", "trellis_one_1", "trellis_one_2" },
                             *const eight[] = { "trellis_eight_0", "trellis_eight_1", "trellis_eight_2" };
    const struct trellis_args *args = (const struct trellis_args *)p->command->args;
    uint32_t rows = args->rows == ROWS_STEP ? p->tape.max_rows : p->tape.max_outputs,
             n = trellis_n_matrices(args);

    for (uint32_t i = 0; i < n; i++)
        launch(p, i, turns[i], TRELLIS_MSL_TURNS * 32,
               (uint32_t[]){ divide_up(exl3_padded(args->n_cols), TRELLIS_MSL_TURNS * EXL3_BLOCK), rows });
    for (uint32_t i = 0; i < n; i++)
        launch(p, i, rows == 1 ? one[i] : eight[i], TRELLIS_MSL_THREADS,
               (uint32_t[]){ exl3_padded(args->n_rows[i]) / EXL3_BLOCK,
                             divide_up(rows, rows == 1 ? 1 : TRELLIS_MSL_ROWS) });
}
