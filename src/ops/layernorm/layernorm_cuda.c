// layernorm_cuda.c - the operation's launch: a warp for each row where it stays in registers, else a block.
#include "base/divide.h"
#include "ops/cuda_table.h"
#include "ops/layernorm/layernorm_cuda.h"

// Does a warp's registers hold a row?
static bool fits_warp(const struct layernorm_args *args)
{
    return args->n_cols % 4 == 0 && args->n_cols <= 128 * LAYERNORM_WARP_FOURS;
}

bool layernorm_packs(const struct cuda_plan *p)
{
    return fits_warp((const struct layernorm_args *)p->command->args);
}

void cuda_plan_layernorm(struct cuda_plan *p)
{
    struct layernorm_params params = { .in = cuda_at(p, LAYERNORM_IN),
                                       .scale = cuda_at(p, LAYERNORM_SCALE),
                                       .bias = cuda_at(p, LAYERNORM_BIAS),
                                       .out = cuda_at(p, LAYERNORM_OUT),
                                       .packed_out = gemm_packed_out(p, LAYERNORM_OUT),
                                       .args = *(const struct layernorm_args *)p->command->args };
    u32 rows = params.args.rows == ROWS_STEP ? p->tape.max_rows : p->tape.max_outputs;
    bool warp = fits_warp(&params.args);
    u32 blocks = warp ? divide_up(rows, LAYERNORM_THREADS / 32) : rows;

    cuda_launch_add(p,
                    !warp                       ? "layernorm"
                    : params.args.n_cols <= 768 ? "layernorm_warp_768"
                                                : "layernorm_warp",
                    (struct cuda_shape){ { blocks, 1, 1 }, LAYERNORM_THREADS, 0 }, &params, sizeof params);
}
