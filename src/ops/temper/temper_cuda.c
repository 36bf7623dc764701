// temper_cuda.c - the operation's launch: a block for each row.
#include "ops/cuda_table.h"
#include "ops/temper/temper_cuda.h"

void cuda_plan_temper(struct cuda_plan *p)
{
    struct temper_params params = { .in = cuda_at(p, 0),
                                    .out = cuda_at(p, 1),
                                    .args = *(const struct temper_args *)p->command->args };
    cuda_launch_add(p, "temper", (struct cuda_shape){ { p->tape.max_rows, 1, 1 }, 256, 0 }, &params,
                    sizeof params);
}
