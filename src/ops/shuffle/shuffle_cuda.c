// shuffle_cuda.c - the operation's launch: a block for each row of a square, so that its columns stay
// contiguous.
#include "ops/cuda_table.h"
#include "ops/shuffle/shuffle_cuda.h"

void cuda_plan_shuffle(struct cuda_plan *p)
{
    struct shuffle_params params = { .in = cuda_at(p, SHUFFLE_IN),
                                     .out = cuda_at(p, SHUFFLE_OUT),
                                     .args = *(const struct shuffle_args *)p->command->args };
    u32 parts = params.args.side * params.args.side;

    cuda_launch_add(p, "shuffle", (struct cuda_shape){ { p->tape.max_outputs, parts, 1 }, 128, 0 }, &params,
                    sizeof params);
}
