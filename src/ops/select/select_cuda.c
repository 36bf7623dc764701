// select_cuda.c - the operation's launch: a block for each output row.
#include "ops/cuda_table.h"
#include "ops/select/select_cuda.h"

void cuda_plan_select(struct cuda_plan *p)
{
    struct select_params params = { .in = cuda_at(p, 0),
                                    .out = cuda_at(p, 1),
                                    .args = *(const struct select_args *)p->command->args };

    cuda_launch_add(p, "select_rows", (struct cuda_shape){ { p->tape.max_outputs, 1, 1 }, 1024, 0 }, &params,
                    sizeof params);
}
