// activate_cuda.c - the operation's launch: a block for each row, and of few rows one for each part, as many
// as keep the device busy.
#include "ops/activate/activate_cuda.h"
#include "base/divide.h"
#include "ops/cuda_table.h"

enum { THREADS = 256, BLOCKS_OF_AN_SM = 4 };

void cuda_plan_activate(struct cuda_plan *p)
{
    struct activate_params params = { .gate = cuda_at(p, 0),
                                      .up = cuda_at(p, 1),
                                      .out = cuda_at(p, 2),
                                      .args = *(const struct activate_args *)p->command->args };
    u32 rows = params.args.rows == ROWS_STEP ? p->tape.max_rows : p->tape.max_outputs,
        parts = divide_up(BLOCKS_OF_AN_SM * p->device.n_sms, rows),
        most = divide_up(params.args.n_cols, THREADS);

    cuda_launch_add(p, "activate",
                    (struct cuda_shape){ { rows, parts < most ? parts : most, 1 }, THREADS, 0 }, &params,
                    sizeof params);
}
