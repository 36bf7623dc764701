// cpu_table.c - gathers what the operations' folders offer the CPU.
#include "ops/cpu_table.h"
#include "gemm/cpu/pack.h"
#include "ops/ops.h"

#define OP(name) extern const struct cpu_op cpu_op_##name;
#include "ops/ops.def"
#undef OP

static const struct cpu_op *const ops[N_OPS] = {
#define OP(name) [OP_##name] = &cpu_op_##name,
#include "ops/ops.def"
#undef OP
};

const struct cpu_table cpu_table = { .ops = ops, .n_ops = N_OPS, .pack = gemm_pack };
