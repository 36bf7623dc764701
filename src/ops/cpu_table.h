// cpu_table.h - the kernels of all operations, for cpu_open.
#pragma once
#include "device/cpu/cpu.h"

extern const struct cpu_table cpu_table;

// An operation that is n others in turn, by their plain loops (ops/parts.h): one tile, since a part may read
// all that the one before it writes.
void cpu_parts_plan(const struct cpu_call *call, const struct command *parts, uint32_t n,
                    struct cpu_plan *plan);
void cpu_parts_run(const struct cpu_call *call, const struct command *parts, uint32_t n);
