// gated_norm_cuda.c - the operation's launch: a warp for each group of a row.
#include "ops/cuda_table.h"
#include "ops/gated_norm/gated_norm_cuda.h"

void cuda_plan_gated_norm(struct cuda_plan *p)
{
    struct gated_norm_params params = { .in = cuda_at(p, GATED_IN),
                                        .z = cuda_at(p, GATED_Z),
                                        .scale = cuda_at(p, GATED_SCALE),
                                        .out = cuda_at(p, GATED_OUT),
                                        .args = *(const struct gated_norm_args *)p->command->args };
    struct cuda_shape shape = { { (params.args.n_groups + 3) / 4, p->tape.max_rows, 1 }, 128, 0 };

    cuda_launch_add(p, "gated_norm", shape, &params, sizeof params);
}
