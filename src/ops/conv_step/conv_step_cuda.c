// conv_step_cuda.c - the operation's launches: first all rows at once, which read the states, then a
// sequence's threads write them.
#include "ops/conv_step/conv_step_cuda.h"
#include "ops/cuda_table.h"

void cuda_plan_conv_step(struct cuda_plan *p)
{
    struct conv_step_params params = { .in = cuda_at(p, CONV_IN),
                                       .w = cuda_at(p, CONV_W),
                                       .bias = cuda_at(p, CONV_BIAS),
                                       .states = cuda_at(p, CONV_STATES),
                                       .out = cuda_at(p, CONV_OUT),
                                       .args = *(const struct conv_step_args *)p->command->args };
    struct cuda_shape shape = { { (params.args.n_channels + 127) / 128, p->tape.max_rows, 1 }, 128, 0 };

    cuda_launch_add(p, "conv_step", shape, &params, sizeof params);
    cuda_launch_add(p, "conv_step_states", shape, &params, sizeof params);
}
