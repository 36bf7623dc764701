// activate_cuda.c - the operation's launch: a block for each row.
#include "ops/activate/activate_cuda.h"
#include "ops/cuda_table.h"

void cuda_plan_activate(struct cuda_plan *p)
{
    struct activate_params params = { .gate = cuda_at(p, 0),
                                      .up = cuda_at(p, 1),
                                      .out = cuda_at(p, 2),
                                      .args = *(const struct activate_args *)p->command->args };
    cuda_launch_add(p, "activate", (struct cuda_shape){ { p->tape.max_rows, 1, 1 }, 256, 0 }, &params,
                    sizeof params);
}
