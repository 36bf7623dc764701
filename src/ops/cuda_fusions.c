// cuda_fusions.c - which commands write the next one's packed input on CUDA: the table that tape_seal goes by
// (device/fuse.h).
//
// attend, delta_step and gate_up write what the matmul behind them reads; a matmul of few rows writes for the
// product behind it, multiplied by that one's norm, whose factor follows from sums of squares that are packed
// too; where ranks' sums lie between the two, the all-reduce does. In an encoder layernorm writes for the
// products behind it, these for attention, and that and the activated product for the product behind each, as
// patches and shuffle do: nothing but the residual stream goes through memory as fp32. Whether a pair is
// fused depends on the kernels of both: the reader must read one form alone, and the writer's kernel must
// have an epilogue for it.
#include "ops/all_reduce/all_reduce_packed.h"
#include "ops/attend/attend.h"
#include "ops/attend_all/attend_all.h"
#include "ops/cuda_table.h"
#include "ops/delta_step/delta_step.h"
#include "ops/gate_up/gate_up.h"
#include "ops/layernorm/layernorm.h"
#include "ops/matmul/matmul.h"
#include "ops/ops.h"
#include "ops/patches/patches.h"
#include "ops/qkv/qkv.h"
#include "ops/shuffle/shuffle.h"

// What the command multiplies, if it is one product: gate and up in unlike formats are two.
static bool product_of(const struct cuda_plan *p, struct gemm_plan *product)
{
    switch (p->command->op) {
    case OP_matmul:
        *product = matmul_gemm(p);
        return true;
    case OP_matmul_activated:
        *product = matmul_activated_gemm(p);
        return true;
    case OP_matmul_three: // all alike
        *product = matmul_three_gemm(p, 0);
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

// The form in which the command reads its input, if that is one.
static const struct tape_packing *packing_read(const struct cuda_plan *p)
{
    struct gemm_plan product;

    if (p->command->op == OP_attend_all)
        return attend_all_packs(p) ? &gemm_packing_rows : NULL;
    return product_of(p, &product) ? gemm_packing_read(p, &product) : NULL;
}

static bool is_written(const struct cuda_plan *p, const struct tape_packing *packing)
{
    struct gemm_plan product;

    switch (p->command->op) {
    case TAPE_ALL_REDUCE:
        return all_reduce_packs(p, packing);
    case OP_attend:
        return attend_packs(p, packing);
    case OP_delta_step:
        return delta_step_packs(p);
    case OP_attend_all:
        return attend_all_packs(p) && (packing == &gemm_packing_bf16 ||
                                       (packing == &gemm_packing_int8_tiles && attend_all_packs_int8(p)));
    case OP_patches:
        return packing == &gemm_packing_bf16;
    case OP_layernorm:
        return layernorm_packs(p) && (packing == &gemm_packing_bf16 || packing == &gemm_packing_int8_tiles ||
                                      packing == &gemm_packing_int8_wide);
    case OP_shuffle:
        return shuffle_packs(p) && packing == &gemm_packing_bf16;
    default:
        return product_of(p, &product) && gemm_packing_written(p, &product, packing);
    }
}

static const struct tape_packing *packing_of(struct device *d, const struct tape_limits *limits,
                                             const struct command *from, const struct command *to)
{
    struct cuda_plan writer = cuda_plan_of(d, limits, from), reader = cuda_plan_of(d, limits, to);
    const struct tape_packing *packing = packing_read(&reader);

    return packing && is_written(&writer, packing) ? packing : NULL;
}

const struct tape_fusion cuda_fusions[] = {
    // writer, its result        reader, its input and norm
    { OP_attend, ATTEND_OUT, OP_matmul, MATMUL_IN, 0, packing_of, FUSE_ROWS_TOO },
    { OP_delta_step, DELTA_OUT, OP_matmul, MATMUL_IN, 0, packing_of, FUSE_ROWS_TOO },
    { OP_gate_up, GATE_UP_OUT, OP_matmul, MATMUL_IN, 0, packing_of, FUSE_ROWS_IF_READ },
    { OP_matmul, MATMUL_OUT, OP_matmul, MATMUL_IN, 0, packing_of, FUSE_ROWS_TOO },
    { OP_matmul, MATMUL_OUT, OP_qkv, QKV_IN, QKV_NORM, packing_of, FUSE_ROWS_TOO },
    { OP_matmul, MATMUL_OUT, OP_gate_up, GATE_UP_IN, GATE_UP_NORM, packing_of, FUSE_ROWS_TOO },
    // of ranks, whose sum is the second operand
    { TAPE_ALL_REDUCE, 1, OP_qkv, QKV_IN, QKV_NORM, packing_of, FUSE_ROWS_TOO },
    { TAPE_ALL_REDUCE, 1, OP_gate_up, GATE_UP_IN, GATE_UP_NORM, packing_of, FUSE_ROWS_TOO },
    // an encoder's
    { OP_patches, PATCHES_OUT, OP_matmul, MATMUL_IN, 0, packing_of, FUSE_ROWS_IF_READ },
    { OP_layernorm, LAYERNORM_OUT, OP_matmul, MATMUL_IN, 0, packing_of, FUSE_ROWS_IF_READ },
    { OP_layernorm, LAYERNORM_OUT, OP_matmul_activated, MATMUL_IN, 0, packing_of, FUSE_ROWS_IF_READ },
    { OP_layernorm, LAYERNORM_OUT, OP_matmul_three, THREE_IN, 0, packing_of, FUSE_ROWS_IF_READ },
    { OP_matmul_three, THREE_OUT, OP_attend_all, ATTEND_ALL_Q, 0, packing_of, FUSE_ROWS_IF_READ },
    { OP_matmul_three, THREE_OUT + 1, OP_attend_all, ATTEND_ALL_K, 0, packing_of, FUSE_ROWS_IF_READ },
    { OP_matmul_three, THREE_OUT + 2, OP_attend_all, ATTEND_ALL_V, 0, packing_of, FUSE_ROWS_IF_READ },
    { OP_matmul, MATMUL_OUT, OP_attend_all, ATTEND_ALL_Q, 0, packing_of, FUSE_ROWS_IF_READ },
    { OP_matmul, MATMUL_OUT, OP_attend_all, ATTEND_ALL_K, 0, packing_of, FUSE_ROWS_IF_READ },
    { OP_matmul, MATMUL_OUT, OP_attend_all, ATTEND_ALL_V, 0, packing_of, FUSE_ROWS_IF_READ },
    { OP_attend_all, ATTEND_ALL_OUT, OP_matmul, MATMUL_IN, 0, packing_of, FUSE_ROWS_IF_READ },
    { OP_matmul_activated, MATMUL_OUT, OP_matmul, MATMUL_IN, 0, packing_of, FUSE_ROWS_IF_READ },
    { OP_shuffle, SHUFFLE_OUT, OP_matmul, MATMUL_IN, 0, packing_of, FUSE_OUTPUTS_IF_READ },
    { 0 },
};
