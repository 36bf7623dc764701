// activate_cuda.c - the operation's launch: a block for each row; logits, which are few long rows, in parts.
#include "ops/activate/activate_cuda.h"
#include "base/divide.h"
#include "ops/cuda_table.h"

enum { COLS = 4096 }; // of a part

void cuda_plan_activate(struct cuda_plan *p)
{
    struct activate_params params = { .gate = cuda_at(p, 0),
                                      .up = cuda_at(p, 1),
                                      .out = cuda_at(p, 2),
                                      .args = *(const struct activate_args *)p->command->args };
    u32 rows = params.args.rows == ROWS_STEP ? p->tape.max_rows : p->tape.max_outputs,
        parts = params.args.rows == ROWS_STEP ? 1 : divide_up(params.args.n_cols, COLS);

    cuda_launch_add(p, "activate", (struct cuda_shape){ { rows, parts, 1 }, 256, 0 }, &params, sizeof params);
}
