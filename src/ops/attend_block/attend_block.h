// attend_block: a layer's attention in one operation, of the residual stream x
//
//   q         = rotated rmsnorm(x) Wq^T, and k and v to their pages          qkv
//   attended  = softmax(scale * q . K) V                                     attend
//   x         = x + attended Wo^T                                            matmul
//
// The definition is the operations in turn, each as its own header has it. What they hand on stays in the
// operation, so that a device may do without their launches. It is recorded for steps of one row where the
// device has it; else its parts are (models/blocks.c).
#pragma once
#include "ops/attend/attend.h"
#include "ops/matmul/matmul.h"
#include "ops/qkv/qkv.h"

struct attend_block_args {
    struct qkv_args qkv;
    u32 window;
    f32 scale; // of scores
    u32 reserved[2];
};
STATIC_ASSERT(sizeof(struct attend_block_args) == 64);

// Operand numbers, for the kernels: qkv's, of which Q is handed on, and behind them
enum {
    ATTEND_BLOCK_ATTENDED = QKV_Q + 1, // handed on
    ATTEND_BLOCK_ATTEND_WORK,
    ATTEND_BLOCK_O,
    ATTEND_BLOCK_O_WORK,
    ATTEND_BLOCK_OUT
};

#ifdef HOST_C
#include "device/tape.h"

// The parts as they would be recorded: each reads what the one before it writes, and out.out, out.add and
// qkv.in are one tensor.
struct attend_block {
    struct qkv qkv;
    struct attend attend;
    struct matmul out;
};
// Records the operation and returns true. False: this tape takes the parts.
bool op_attend_block(struct tape *t, const struct attend_block *b);

// The commands of the parts, for devices that play them one by one.
enum { ATTEND_BLOCK_QKV, ATTEND_BLOCK_ATTEND, ATTEND_BLOCK_MATMUL, ATTEND_BLOCK_N_PARTS };
void attend_block_parts(const struct command *c, struct command parts[ATTEND_BLOCK_N_PARTS]);
#endif
