// ops.h - the operations' numbers. Each operation's own header says what it computes.
#pragma once

enum op {
#define OP(name) OP_##name,
#include "ops/ops.def"
#undef OP
    N_OPS
};
