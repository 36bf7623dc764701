// cuda_table.h - the launches of all operations, for cuda_open. Each operation's NAME_cuda.c has
// cuda_plan_NAME.
#pragma once
#include "device/cuda/cuda.h"
#include "gemm/cuda/gemm_adapters.h"
#include "ops/lora/lora.h"

#define OP(name) void cuda_plan_##name(struct cuda_plan *p);
#include "ops/ops.def"
#undef OP
// Plans the parts of the command (ops/parts.h), one after the other in the same private memory and counters.
void cuda_plan_parts(struct cuda_plan *p);

// What the command multiplies, which is one of these; and can attention write its result packed so?
struct gemm_plan matmul_gemm(const struct cuda_plan *p);
struct gemm_plan matmul_activated_gemm(const struct cuda_plan *p);
struct gemm_plan matmul_three_gemm(const struct cuda_plan *p, u32 m); // one of them
struct gemm_plan qkv_gemm(const struct cuda_plan *p);
struct gemm_plan gate_up_gemm(const struct cuda_plan *p);
bool attend_packs(const struct cuda_plan *p, const struct tape_packing *packing);
bool delta_step_packs(const struct cuda_plan *p); // so can this
// Does attention over all rows read and write packed rows? Can layernorm write them?
bool attend_all_packs(const struct cuda_plan *p);
bool attend_all_packs_int8(const struct cuda_plan *p);
bool layernorm_packs(const struct cuda_plan *p);
bool shuffle_packs(const struct cuda_plan *p);

// What adapters add to a command's products; operand: the first of theirs.
struct gemm_adapters lora_adapters(const struct cuda_plan *p, u32 operand, const struct adapted_args *args);

extern const struct tape_fusion cuda_fusions[]; // cuda_fusions.c

extern const struct cuda_table cuda_table;
