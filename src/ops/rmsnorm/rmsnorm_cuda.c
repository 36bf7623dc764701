// rmsnorm_cuda.c - the operation's launch: a block for each row.
#include "ops/cuda_table.h"
#include "ops/rmsnorm/rmsnorm_cuda.h"

void cuda_plan_rmsnorm(struct cuda_plan *p)
{
    struct rmsnorm_params params = { .in = cuda_at(p, 0),
                                     .scale = cuda_at(p, 1),
                                     .out = cuda_at(p, 2),
                                     .args = *(const struct rmsnorm_args *)p->command->args };
    u32 rows = params.args.rows == ROWS_STEP ? p->tape.max_rows : p->tape.max_outputs;
    cuda_launch_add(p, "rmsnorm", (struct cuda_shape){ { rows, 1, 1 }, 1024, 0 }, &params, sizeof params);
}
