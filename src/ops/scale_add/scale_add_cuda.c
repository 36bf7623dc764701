// scale_add_cuda.c - the operation's launch: a block for each row.
#include "ops/cuda_table.h"
#include "ops/scale_add/scale_add_cuda.h"

void cuda_plan_scale_add(struct cuda_plan *p)
{
    struct scale_add_params params = { .in = cuda_at(p, SCALE_ADD_IN),
                                       .scale = cuda_at(p, SCALE_ADD_SCALE),
                                       .add = cuda_at(p, SCALE_ADD_ADD),
                                       .out = cuda_at(p, SCALE_ADD_OUT),
                                       .args = *(const struct scale_add_args *)p->command->args };

    cuda_launch_add(p, "scale_add", (struct cuda_shape){ { p->tape.max_rows, 1, 1 }, 256, 0 }, &params,
                    sizeof params);
}
