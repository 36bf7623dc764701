// cuda_table.h - the launches of all operations, for cuda_open. Each operation's NAME_cuda.c has cuda_plan_NAME.
#pragma once
#include "device/cuda/cuda.h"
#include "gemm/cuda/gemm_params.h"

#define OP(name) void cuda_plan_##name(struct cuda_plan *p);
#include "ops/ops.def"
#undef OP

// What the command multiplies, which is one of these.
struct gemm_plan matmul_gemm(const struct cuda_plan *p);
struct gemm_plan qkv_gemm(const struct cuda_plan *p);
struct gemm_plan gate_up_gemm(const struct cuda_plan *p);

extern const struct cuda_table cuda_table;
