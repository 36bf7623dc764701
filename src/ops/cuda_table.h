// cuda_table.h - the launches of all operations, for cuda_open. Each operation's NAME_cuda.c has cuda_plan_NAME.
#pragma once
#include "device/cuda/cuda.h"
#include "gemm/cuda/pairs.h"

#define OP(name) void cuda_plan_##name(struct cuda_plan *p);
#include "ops/ops.def"
#undef OP

// What the command multiplies, which is one of these.
struct pairs_plan matmul_pairs(const struct cuda_plan *p);
struct pairs_plan qkv_pairs(const struct cuda_plan *p);
struct pairs_plan gate_up_pairs(const struct cuda_plan *p);

extern const struct cuda_table cuda_table;
