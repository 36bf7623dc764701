// layernorm_cuda.c - the operation's launch: a warp for each row where it stays in registers, else a block.
#include "base/divide.h"
#include "ops/cuda_table.h"
#include "ops/layernorm/layernorm_cuda.h"

void cuda_plan_layernorm(struct cuda_plan *p)
{
    struct layernorm_params params = { .in = cuda_at(p, LAYERNORM_IN),
                                       .scale = cuda_at(p, LAYERNORM_SCALE),
                                       .bias = cuda_at(p, LAYERNORM_BIAS),
                                       .out = cuda_at(p, LAYERNORM_OUT),
                                       .args = *(const struct layernorm_args *)p->command->args };
    u32 rows = params.args.rows == ROWS_STEP ? p->tape.max_rows : p->tape.max_outputs, n = params.args.n_cols;
    bool fits = n % 4 == 0 && n <= 128 * LAYERNORM_WARP_FOURS;
    u32 blocks = fits ? divide_up(rows, LAYERNORM_THREADS / 32) : rows;

    cuda_launch_add(p, fits ? "layernorm_warp" : "layernorm",
                    (struct cuda_shape){ { blocks, 1, 1 }, LAYERNORM_THREADS, 0 }, &params, sizeof params);
}
