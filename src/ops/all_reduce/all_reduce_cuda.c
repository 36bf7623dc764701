// all_reduce_cuda.c - the launch of an all-reduce that packs the next product's rows; see
// all_reduce_packed.cu.
#include <string.h>
#include "ops/all_reduce/all_reduce_packed.h"
#include "device/tape_internal.h"
#include "gemm/cuda/gemm_plan.h"

enum { PACKED_ROWS = 8 }; // of a tile of gemm_int8

bool all_reduce_packs(const struct cuda_plan *p, const struct tape_packing *packing)
{
    struct exchange_args args;

    memcpy(&args, p->command->args, sizeof args);
    return packing == &gemm_packing_int8 && args.rows == ROWS_STEP && args.n_cols % 32 == 0 &&
           p->tape.max_rows <= PACKED_ROWS;
}

void all_reduce_packed_launch(struct cuda_plan *p, const struct all_reduce_params *sum)
{
    struct all_reduce_packed_params params = { *sum, gemm_packed_out(p, 1) };
    u32 n = sum->peers.n <= 2 ? 2 : sum->peers.n <= 4 ? 4 : 8;
    u32 blocks = divide_up(p->tape.max_rows * (sum->n_cols / 8), EXCHANGE_THREADS);
    char name[32];

    CHECK(blocks <= p->device.n_sms * EXCHANGE_FEW_BLOCKS); // all at once: they wait for the other ranks'
    snprintf(name, sizeof name, "all_reduce_packed_%u", n);
    cuda_launch_add(p, name, (struct cuda_shape){ { blocks, 1, 1 }, EXCHANGE_THREADS, 0 }, &params,
                    sizeof params);
}
