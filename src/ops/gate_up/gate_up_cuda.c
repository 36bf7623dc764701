// gate_up_cuda.c - the operation's launches. Gate and up in different formats are two products, the second
// with the first's result as an operand.
#include "ops/cuda_table.h"
#include "ops/gate_up/gate_up.h"
#include "gemm/cuda/gemm_params.h"

struct gemm_plan gate_up_gemm(const struct cuda_plan *p)
{
    const struct gate_up_args *args = (const struct gate_up_args *)p->command->args;
    return (struct gemm_plan){
        .params = { .w = { weight_layout_of(p, GATE_UP_GATE), weight_layout_of(p, GATE_UP_UP) },
                    .out = { cuda_at(p, GATE_UP_OUT) },
                    .in = cuda_at(p, GATE_UP_IN),
                    .norm = cuda_at(p, GATE_UP_NORM),
                    .out_stride = { args->n_out },
                    .n_cols = args->n_cols,
                    .mode = EPILOGUE_GATED,
                    .rows = ROWS_STEP,
                    .activation = args->activation,
                    .eps = args->eps },
        .work = cuda_at(p, GATE_UP_WORK),
        .work_bytes = p->command->operands[GATE_UP_WORK].bytes,
        .exact = args->exact,
    };
}

void cuda_plan_gate_up(struct cuda_plan *p)
{
    struct gemm_plan product = gate_up_gemm(p);
    struct weight_planes gate = product.params.w[0], up = product.params.w[1];

    if (gate.format == up.format) {
        gemm_launch(p, &product);
        return;
    }
    product.params.w[0] = up;
    product.params.mode = EPILOGUE_LINEAR;
    gemm_launch(p, &product);
    product.params.w[0] = gate;
    product.params.mode = EPILOGUE_GATE_OVER;
    gemm_launch(p, &product);
}
