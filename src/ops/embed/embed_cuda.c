// embed_cuda.c - the operation's launch: a block for each row.
#include "ops/cuda_table.h"
#include "ops/embed/embed_cuda.h"

void cuda_plan_embed(struct cuda_plan *p)
{
    struct embed_params params = { .table = weight_layout_of(p, EMBED_TABLE),
                                   .history = cuda_at(p, EMBED_HISTORY),
                                   .pool = cuda_at(p, EMBED_POOL),
                                   .out = cuda_at(p, EMBED_OUT),
                                   .args = *(const struct embed_args *)p->command->args };
    cuda_launch_add(p, "embed", (struct cuda_shape){ { p->tape.max_rows, 1, 1 }, 128, 0 }, &params,
                    sizeof params);
}
