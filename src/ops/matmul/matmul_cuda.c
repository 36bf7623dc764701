// matmul_cuda.c - the operations' launches; gemm_plan.c chooses the kernels.
#include "ops/cuda_table.h"
#include "ops/matmul/matmul.h"
#include "gemm/cuda/cluster/cluster_params.h"

struct gemm_plan matmul_gemm(const struct cuda_plan *p)
{
    const struct matmul_args *args = (const struct matmul_args *)p->command->args;
    return (struct gemm_plan){
        .params = { .w = { weight_layout_of(p, MATMUL_W) },
                    .bias = { cuda_at(p, MATMUL_BIAS) },
                    .out = { cuda_at(p, MATMUL_OUT) },
                    .in = cuda_at(p, MATMUL_IN),
                    .add = cuda_at(p, MATMUL_ADD),
                    .packed_out = gemm_packed_out(p, MATMUL_OUT),
                    .out_stride = { args->n_rows },
                    .n_cols = args->n_cols,
                    .mode = EPILOGUE_LINEAR,
                    .rows = args->rows },
        .work = cuda_at(p, MATMUL_WORK),
        .work_bytes = p->command->operands[MATMUL_WORK].bytes,
        .exact = args->exact,
        .adds = p->command->operands[MATMUL_ADD].bytes > 0,
    };
}

void cuda_plan_matmul(struct cuda_plan *p)
{
    struct gemm_plan product = matmul_gemm(p);
    gemm_launch(p, &product);
}

struct gemm_plan matmul_activated_gemm(const struct cuda_plan *p)
{
    struct gemm_plan product = matmul_gemm(p); // the arguments begin with matmul's

    product.params.mode = EPILOGUE_ACTIVATED;
    product.params.activation = ((const struct matmul_activated_args *)p->command->args)->activation;
    return product;
}

void cuda_plan_matmul_activated(struct cuda_plan *p)
{
    struct gemm_plan product = matmul_activated_gemm(p);
    gemm_launch(p, &product);
}

struct gemm_plan matmul_three_gemm(const struct cuda_plan *p, u32 m)
{
    const struct matmul_args *args = (const struct matmul_args *)p->command->args;

    return (struct gemm_plan){
        .params = { .w = { weight_layout_of(p, THREE_W + m) },
                    .bias = { cuda_at(p, THREE_BIAS + m) },
                    .out = { cuda_at(p, THREE_OUT + m) },
                    .in = cuda_at(p, THREE_IN),
                    .packed_out = gemm_packed_out(p, THREE_OUT + m),
                    .out_stride = { args->n_rows },
                    .n_cols = args->n_cols,
                    .mode = EPILOGUE_LINEAR,
                    .rows = args->rows },
        .work = cuda_at(p, THREE_WORK),
        .work_bytes = p->command->operands[THREE_WORK].bytes,
        .exact = args->exact,
    };
}

void cuda_plan_matmul_three(struct cuda_plan *p)
{
    struct gemm_plan products[3];

    for (u32 m = 0; m < 3; m++)
        products[m] = matmul_three_gemm(p, m);
    if (gemm_launch_joined(p, products, 3))
        return;
    for (u32 m = 0; m < 3; m++)
        gemm_launch(p, &products[m]);
}

static struct gemm_plan normed_gemm(const struct cuda_plan *p)
{
    const struct matmul_normed_args *args = (const struct matmul_normed_args *)p->command->args;

    return (struct gemm_plan){
        .params = { .w = { weight_layout_of(p, NORMED_W), weight_layout_of(p, NORMED_V),
                           weight_layout_of(p, NORMED_U) },
                    .out = { cuda_at(p, NORMED_OUT), cuda_at(p, NORMED_MORE), cuda_at(p, NORMED_LAST) },
                    .in = cuda_at(p, NORMED_IN),
                    .norm = cuda_at(p, NORMED_NORM),
                    .out_stride = { args->n_rows, args->n_more, args->n_last },
                    .n_cols = args->n_cols,
                    .mode = args->n_more > 0 ? EPILOGUE_QKV : EPILOGUE_LINEAR, // that of q, k and v
                    .rows = ROWS_STEP,
                    .eps = args->eps,
                    .rope.pages.head_dim = 2 },
        .work = cuda_at(p, NORMED_WORK),
        .work_bytes = p->command->operands[NORMED_WORK].bytes,
        .exact = args->exact,
    };
}

void cuda_plan_matmul_normed(struct cuda_plan *p)
{
    struct gemm_plan product = normed_gemm(p);
    gemm_launch(p, &product);
}

void cuda_plan_matmul_adapted(struct cuda_plan *p)
{
    const struct matmul_adapted_args *args = (const struct matmul_adapted_args *)p->command->args;
    struct gemm_plan product = matmul_gemm(p); // the arguments begin with matmul's

    struct gemm_adapters adapters = lora_adapters(p, MATMUL_ADAPTERS, &args->adapters);

    gemm_launch_adapted(p, &product, &adapters);
}
