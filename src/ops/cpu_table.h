// cpu_table.h - the kernels of all operations, for cpu_open.
#pragma once
#include "device/cpu/cpu.h"

extern const struct cpu_table cpu_table;

// The definition of an operation that is others in turn (ops/parts.h), by their plain loops: one tile, since
// a part may read all that the one before it writes. Where speed counts, the parts are recorded instead.
void cpu_parts_plan(const struct cpu_call *call, struct cpu_plan *plan);
void cpu_parts_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last);
