// cuda_table.h - the launches of all operations, for cuda_open. Each operation's NAME_cuda.c has cuda_plan_NAME.
#pragma once
#include "device/cuda/cuda.h"

#define OP(name) void cuda_plan_##name(struct cuda_plan *p);
#include "ops/ops.def"
#undef OP

extern const struct cuda_table cuda_table;
