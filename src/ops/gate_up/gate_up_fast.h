// gate_up_fast.h - gate_up's plan and run for any set of product kernels; gate_up_cpu.c makes a kernel of each set.
#pragma once
#include "ops/product_choices.h"

void gate_up_fast_plan(const struct cpu_call *call, struct cpu_plan *plan, const struct product_set *set);
void gate_up_fast_run(const struct cpu_call *call, uint32_t phase, struct tile_range range, const struct product_set *set);
