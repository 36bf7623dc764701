// matmul_fast.h - the product's plan and run for any set of kernels; matmul_cpu.c makes a kernel of each set.
#pragma once
#include "ops/product_choices.h"

void matmul_fast_plan(const struct cpu_call *call, struct cpu_plan *plan, const struct product_set *set);
void matmul_fast_run(const struct cpu_call *call, uint32_t phase, struct tile_range range, const struct product_set *set);
