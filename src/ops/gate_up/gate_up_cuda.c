// gate_up_cuda.c - the operation's launches. Gate and up in unlike formats are two products, the second over the first's result.
#include "ops/cuda_table.h"
#include "ops/gate_up/gate_up.h"
#include "gemm/cuda/pairs.h"

struct pairs_plan gate_up_pairs(const struct cuda_plan *p)
{
    const struct gate_up_args *args = (const struct gate_up_args *)p->command->args;
    return (struct pairs_plan){
        .params = { .w = { planes_of(p, GATE_UP_GATE), planes_of(p, GATE_UP_UP) },
                    .out = { cuda_at(p, GATE_UP_OUT) },
                    .in = cuda_at(p, GATE_UP_IN),
                    .norm = cuda_at(p, GATE_UP_NORM),
                    .out_stride = { args->n_out },
                    .n_cols = args->n_cols,
                    .mode = PAIRS_GATED,
                    .rows = ROWS_STEP,
                    .activation = args->activation,
                    .eps = args->eps },
        .work = cuda_at(p, GATE_UP_WORK),
        .work_bytes = p->command->operands[GATE_UP_WORK].bytes,
        .exact = args->exact,
        .final = true,
    };
}

void cuda_plan_gate_up(struct cuda_plan *p)
{
    struct pairs_plan product = gate_up_pairs(p);
    struct planes gate = product.params.w[0], up = product.params.w[1];

    if (gate.format == up.format) {
        pairs_launch(p, &product);
        return;
    }
    product.params.w[0] = up;
    product.params.mode = PAIRS_PLAIN;
    product.final = false;
    pairs_launch(p, &product);
    product.final = true;
    product.params.w[0] = gate;
    product.params.mode = PAIRS_GATE_OVER;
    pairs_launch(p, &product);
}
