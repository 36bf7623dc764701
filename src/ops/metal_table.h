// metal_table.h - the launches of all operations, for metal_open. Each operation's NAME_metal.c has
// metal_plan_NAME.
#pragma once
#include "device/fuse.h"
#include "device/metal/metal.h"

#define OPS_OF_METAL
#define OP(name) void metal_plan_##name(struct metal_plan *p);
#include "ops/ops.def"
#undef OP
#undef OPS_OF_METAL

extern const struct metal_table metal_table;
extern const struct tape_fusion metal_fusions[]; // metal_fusions.c
