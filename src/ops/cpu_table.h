// cpu_table.h - the kernels of all operations, for cpu_open.
#pragma once
#include "device/cpu/cpu.h"

extern const struct cpu_table cpu_table;
