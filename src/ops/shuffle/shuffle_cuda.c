// shuffle_cuda.c - the operation's launch: a block for each row of a square, so that its columns stay
// contiguous.
#include "gemm/cuda/gemm_params.h"
#include "ops/cuda_table.h"
#include "ops/shuffle/shuffle_cuda.h"

// Four columns are packed at a time.
bool shuffle_packs(const struct cuda_plan *p)
{
    return ((const struct shuffle_args *)p->command->args)->n_cols % 4 == 0;
}

void cuda_plan_shuffle(struct cuda_plan *p)
{
    struct shuffle_params params = { .in = cuda_at(p, SHUFFLE_IN),
                                     .out = cuda_at(p, SHUFFLE_OUT),
                                     .packed_out = gemm_packed_out(p, SHUFFLE_OUT),
                                     .args = *(const struct shuffle_args *)p->command->args };
    u32 parts = params.args.side * params.args.side;

    cuda_launch_add(p, "shuffle", (struct cuda_shape){ { p->tape.max_outputs, parts, 1 }, 128, 0 }, &params,
                    sizeof params);
}
