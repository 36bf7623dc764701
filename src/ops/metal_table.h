// metal_table.h - the launches of all operations, for metal_open. Each operation's NAME_metal.c has metal_plan_NAME.
#pragma once
#include "device/metal/metal.h"

#define OP(name) void metal_plan_##name(struct metal_plan *p);
#include "ops/ops.def"
#undef OP

extern const struct metal_table metal_table;
