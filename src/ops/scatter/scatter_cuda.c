// scatter_cuda.c - the operation's launch: a block for each output row.
#include "ops/cuda_table.h"
#include "ops/scatter/scatter_cuda.h"

void cuda_plan_scatter(struct cuda_plan *p)
{
    struct scatter_params params = { .in = cuda_at(p, SCATTER_IN),
                                     .places = cuda_at(p, SCATTER_PLACES),
                                     .pool = cuda_at(p, SCATTER_POOL),
                                     .args = *(const struct scatter_args *)p->command->args };

    cuda_launch_add(p, "scatter", (struct cuda_shape){ { p->tape.max_outputs, 1, 1 }, 256, 0 }, &params,
                    sizeof params);
}
