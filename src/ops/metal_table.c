// metal_table.c - gathers what the operations' folders offer the Metal device.
#include "ops/metal_table.h"
#include "ops/attend/attend_metal.h"
#include "ops/ops.h"

static void (*const plans[N_OPS])(struct metal_plan *p) = {
#define OPS_OF_METAL
#define OP(name) [OP_##name] = metal_plan_##name,
#include "ops/ops.def"
#undef OP
#undef OPS_OF_METAL
};

const struct metal_table metal_table = { .plans = plans,
                                         .n_ops = N_OPS,
                                         .max_head_dim = ATTEND_MAX_DIM,
                                         .product_cols = 32,
                                         .fusions = metal_fusions };
