// metal_table.c - gathers what the operations' folders offer the Metal device: a line for each operation that has kernels.
#include "ops/metal_table.h"
#include "ops/ops.h"

static void (*const plans[N_OPS])(struct metal_plan *p) = {
    [OP_rmsnorm] = metal_plan_rmsnorm,
};

const struct metal_table metal_table = { .plans = plans, .n_ops = N_OPS };
