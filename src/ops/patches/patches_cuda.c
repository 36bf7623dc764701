// patches_cuda.c - the operation's launch: a block for each row.
#include "gemm/cuda/gemm_params.h"
#include "ops/cuda_table.h"
#include "ops/patches/patches_cuda.h"

void cuda_plan_patches(struct cuda_plan *p)
{
    struct patches_params params = { .pixels = cuda_at(p, PATCHES_PIXELS),
                                     .table = cuda_at(p, PATCHES_TABLE),
                                     .out = cuda_at(p, PATCHES_OUT),
                                     .packed_out = gemm_packed_out(p, PATCHES_OUT),
                                     .args = *(const struct patches_args *)p->command->args };

    cuda_launch_add(p, "patches", (struct cuda_shape){ { p->tape.max_rows, 1, 1 }, 256, 0 }, &params,
                    sizeof params);
}
