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
                    .packed_out = gemm_packed_out(p, GATE_UP_OUT),
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

// One of the two products.
static void launch_one(struct cuda_plan *p, struct gemm_plan product, struct gemm_adapters a, u32 m)
{
    product.params.w[0] = product.params.w[m];
    product.params.mode = m ? EPILOGUE_LINEAR : EPILOGUE_GATE_OVER;
    a.a[0] = a.a[m];
    a.b[0] = a.b[m];
    a.owners[0] = a.owners[m];
    a.n_ranks[0] = a.n_ranks[m];
    a.n_ranks[1] = 0;
    gemm_launch_adapted(p, &product, &a);
}

static void launch_both(struct cuda_plan *p, const struct gemm_plan *product,
                        const struct gemm_adapters *adapters)
{
    if (product->params.w[0].format == product->params.w[1].format) {
        gemm_launch_adapted(p, product, adapters);
        return;
    }
    launch_one(p, *product, *adapters, 1);
    launch_one(p, *product, *adapters, 0);
}

void cuda_plan_gate_up(struct cuda_plan *p)
{
    struct gemm_plan product = gate_up_gemm(p);
    launch_both(p, &product, &(struct gemm_adapters){ 0 });
}

void cuda_plan_gate_up_adapted(struct cuda_plan *p)
{
    const struct gate_up_adapted_args *args = (const struct gate_up_adapted_args *)p->command->args;
    struct gemm_plan product = gate_up_gemm(p); // the arguments begin with gate_up's
    struct gemm_adapters adapters = lora_adapters(p, GATE_UP_ADAPTERS, &args->adapters);

    launch_both(p, &product, &adapters);
}
