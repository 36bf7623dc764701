// cuda_table.c - gathers what the operations' folders offer the CUDA device.
#include "ops/cuda_table.h"
#include "gemm/cuda/weight_layout.h"
#include "ops/ops.h"

static void (*const plans[N_OPS])(struct cuda_plan *p) = {
#define OP(name) [OP_##name] = cuda_plan_##name,
#include "ops/ops.def"
#undef OP
};

static bool product_of(const struct cuda_plan *p, struct gemm_plan *product)
{
    uint16_t op = p->command->op;

    if (op == OP_matmul)
        *product = matmul_gemm(p);
    else if (op == OP_qkv)
        *product = qkv_gemm(p);
    else if (op == OP_gate_up)
        *product = gate_up_gemm(p);
    return op == OP_matmul || op == OP_qkv || (op == OP_gate_up && product->params.w[0].format == product->params.w[1].format);
}

const struct cuda_table cuda_table = { .plans = plans, .n_ops = N_OPS, .product = product_of, .pack = weight_layout_pack };
