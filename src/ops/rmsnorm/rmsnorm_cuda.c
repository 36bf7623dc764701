// rmsnorm_cuda.c - the operation's launch: a block for each group of each row.
#include "ops/cuda_table.h"
#include "ops/rmsnorm/rmsnorm_cuda.h"

void cuda_plan_rmsnorm(struct cuda_plan *p)
{
    struct rmsnorm_params params = { .in = cuda_at(p, RMSNORM_IN),
                                     .scale = cuda_at(p, RMSNORM_SCALE),
                                     .add = cuda_at(p, RMSNORM_ADD),
                                     .out = cuda_at(p, RMSNORM_OUT),
                                     .args = *(const struct rmsnorm_args *)p->command->args };
    u32 rows = params.args.rows == ROWS_STEP ? p->tape.max_rows : p->tape.max_outputs;
    cuda_launch_add(p, "rmsnorm", (struct cuda_shape){ { rows, params.args.n_groups, 1 }, 1024, 0 }, &params,
                    sizeof params);
}
