// lora_cuda.c - the operation's two launches; and what products in the same command take of it.
#include "ops/lora/lora_cuda.h"
#include "base/divide.h"
#include "ops/cuda_table.h"

struct gemm_adapters lora_adapters(const struct cuda_plan *p, u32 operand, const struct adapted_args *args)
{
    struct gemm_adapters to = { .scales = cuda_at(p, operand + ADAPTED_SCALES),
                                .n_adapters = args->n_adapters };

    for (u32 i = 0; i < LORA_TARGETS; i++) {
        u32 first = operand + ADAPTED_OPERANDS * i;
        to.a[i] = cuda_at(p, first + ADAPTED_A);
        to.b[i] = cuda_at(p, first + ADAPTED_B);
        to.owners[i] = cuda_at(p, first + ADAPTED_OWNERS);
        to.n_ranks[i] = args->n_ranks[i];
    }
    return to;
}

void cuda_plan_lora(struct cuda_plan *p)
{
    struct lora_params params = { .in = cuda_at(p, LORA_IN),
                                  .scales = cuda_at(p, LORA_SCALES),
                                  .work = cuda_at(p, LORA_WORK),
                                  .args = *(const struct lora_args *)p->command->args };
    u32 rows = params.args.rows == ROWS_STEP ? p->tape.max_rows : p->tape.max_outputs;

    for (u32 i = 0; i < params.args.n_targets; i++) {
        params.a[i] = cuda_at(p, LORA_A + LORA_OPERANDS * i);
        params.b[i] = cuda_at(p, LORA_B + LORA_OPERANDS * i);
        params.owners[i] = cuda_at(p, LORA_OWNERS + LORA_OPERANDS * i);
        params.out[i] = cuda_at(p, LORA_OUT + LORA_OPERANDS * i);
    }
    bool many = rows >= LORA_LEAST_MANY;
    u32 ranks = divide_up(lora_most(params.args.n_ranks), many ? LORA_MANY_RANKS : 1);
    u32 columns = divide_up(lora_most(params.args.n_out), 4 * LORA_UP_THREADS);
    struct cuda_shape down = { { ranks, divide_up(rows, many ? LORA_DOWN_ROWS : 1), params.args.n_targets },
                               LORA_DOWN_THREADS,
                               0 },
                      up = { { columns, divide_up(rows, many ? LORA_UP_ROWS : 1), params.args.n_targets },
                             LORA_UP_THREADS,
                             0 };
    cuda_launch_add(p, many ? "lora_down_many" : "lora_down", down, &params, sizeof params);
    cuda_launch_add(p, many ? "lora_up_many" : "lora_up", up, &params, sizeof params);
}
