// qkv_fast.h - qkv's plan and run for any set of product kernels; qkv_cpu.c makes a kernel of each set.
#pragma once
#include "ops/product_choices.h"

void qkv_fast_plan(const struct cpu_call *call, struct cpu_plan *plan, const struct product_set *set);
void qkv_fast_run(const struct cpu_call *call, uint32_t phase, struct tile_range range, const struct product_set *set);
