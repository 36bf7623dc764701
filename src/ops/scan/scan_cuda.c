// scan_cuda.c - the operation's launch: a block for each possible beginning of a sequence's rows and 32
// columns of a head's state.
#include "ops/cuda_table.h"
#include "ops/scan/scan_cuda.h"

void cuda_plan_scan(struct cuda_plan *p)
{
    struct scan_params params = { .in = cuda_at(p, SCAN_IN),
                                  .dt = cuda_at(p, SCAN_DT),
                                  .beta = cuda_at(p, SCAN_BETA),
                                  .a = cuda_at(p, SCAN_A),
                                  .dt_bias = cuda_at(p, SCAN_DT_BIAS),
                                  .d = cuda_at(p, SCAN_D),
                                  .states = cuda_at(p, SCAN_STATES),
                                  .out = cuda_at(p, SCAN_OUT),
                                  .args = *(const struct scan_args *)p->command->args };
    u32 blocks = (params.args.d_v + SCAN_COLUMNS - 1) / SCAN_COLUMNS;
    struct cuda_shape shape = { { params.args.n_heads * blocks, p->tape.max_rows, 1 }, 128, 0 };

    cuda_launch_add(p, params.args.d_k <= 128 ? "scan_rows" : "scan_rows_wide", shape, &params,
                    sizeof params);
}
