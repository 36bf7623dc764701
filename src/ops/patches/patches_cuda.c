// patches_cuda.c - the operation's launch: a warp for each row.
#include "base/divide.h"
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

    u32 blocks = divide_up(p->tape.max_rows, PATCHES_THREADS / 32);
    bool eights = params.args.patch % 8 == 0 && params.args.side % 8 == 0 && params.args.n_cols % 8 == 0;

    cuda_launch_add(p, eights ? "patches_eight" : "patches",
                    (struct cuda_shape){ { blocks, 1, 1 }, PATCHES_THREADS, 0 }, &params, sizeof params);
}
