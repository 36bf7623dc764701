// cuda_fusions.c - which commands write the next one's packed input on CUDA: the table that tape_seal goes by
// (device/fuse.h).
//
// attend and gate_up write what the matmul behind them reads; a matmul of few rows writes for the product
// behind it, multiplied by that one's norm, whose factor follows from sums of squares that are packed too.
// Whether a pair is fused depends on the kernels of both: the reader must read one form alone, and the
// writer's kernel must have an epilogue for it.
#include "ops/attend/attend.h"
#include "ops/cuda_table.h"
#include "ops/gate_up/gate_up.h"
#include "ops/matmul/matmul.h"
#include "ops/ops.h"
#include "ops/qkv/qkv.h"

// What the command multiplies, if it is one product: gate and up in unlike formats are two.
static bool product_of(const struct cuda_plan *p, struct gemm_plan *product)
{
    switch (p->command->op) {
    case OP_matmul:
        *product = matmul_gemm(p);
        return true;
    case OP_qkv:
        *product = qkv_gemm(p);
        return true;
    case OP_gate_up:
        *product = gate_up_gemm(p);
        return product->params.w[0].format == product->params.w[1].format;
    default:
        return false;
    }
}

static const struct tape_packing *packing_of(struct device *d, const struct tape_limits *limits,
                                             const struct command *from, const struct command *to)
{
    struct cuda_plan writer = cuda_plan_of(d, limits, from), reader = cuda_plan_of(d, limits, to);
    struct gemm_plan product;
    const struct tape_packing *packing =
        product_of(&reader, &product) ? gemm_packing_read(&reader, &product) : NULL;

    if (packing && from->op == OP_attend)
        return attend_packs(&writer, packing) ? packing : NULL;
    return packing && product_of(&writer, &product) && gemm_packing_written(&writer, &product, packing)
               ? packing
               : NULL;
}

const struct tape_fusion cuda_fusions[] = {
    // writer, its result        reader, its input and norm
    { OP_attend, ATTEND_OUT, OP_matmul, MATMUL_IN, 0, packing_of },
    { OP_gate_up, GATE_UP_OUT, OP_matmul, MATMUL_IN, 0, packing_of },
    { OP_matmul, MATMUL_OUT, OP_matmul, MATMUL_IN, 0, packing_of },
    { OP_matmul, MATMUL_OUT, OP_qkv, QKV_IN, QKV_NORM, packing_of },
    { OP_matmul, MATMUL_OUT, OP_gate_up, GATE_UP_IN, GATE_UP_NORM, packing_of },
    { 0 },
};
