// angles_cuda.c - the operation's launch: a block for each row.
#include "ops/angles/angles_cuda.h"
#include "ops/cuda_table.h"

void cuda_plan_angles(struct cuda_plan *p)
{
    struct angles_params params = { .frequencies = cuda_at(p, 0),
                                    .out = cuda_at(p, 1),
                                    .args = *(const struct angles_args *)p->command->args };
    cuda_launch_add(p, "angles", (struct cuda_shape){ { p->tape.max_rows, 1, 1 }, 64, 0 }, &params,
                    sizeof params);
}
