// rmsnorm_sum_cuda.c - the operation's launch: a block for each row, which it keeps in shared memory.
#include "ops/cuda_table.h"
#include "ops/rmsnorm_sum/rmsnorm_sum_cuda.h"

void cuda_plan_rmsnorm_sum(struct cuda_plan *p)
{
    struct rmsnorm_sum_params params = { .a = cuda_at(p, SUM_A),
                                         .a_scale = cuda_at(p, SUM_A_SCALE),
                                         .b = cuda_at(p, SUM_B),
                                         .b_scale = cuda_at(p, SUM_B_SCALE),
                                         .scale = cuda_at(p, SUM_SCALE),
                                         .add = cuda_at(p, SUM_ADD),
                                         .out = cuda_at(p, SUM_OUT),
                                         .args = *(const struct rmsnorm_sum_args *)p->command->args };

    cuda_launch_add(p, "rmsnorm_sum", (struct cuda_shape){ { p->tape.max_rows, 1, 1 }, 1024, 0 }, &params,
                    sizeof params);
}
