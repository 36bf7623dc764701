// delta_step: what a gated delta net does between its projections, in one operation: the short convolution,
// the recurrence and the gated norm
//
//   out = gated_norm(scan(conv_step(in), dt, beta), z)
//
// The definition is the operations in turn, each as its own header has it. What they hand on stays in the
// operation, so that a device may do without its rounds through memory. Where the device does not have it,
// and where a row must have the same bits in any step, its parts are recorded.
#pragma once
#include "ops/conv_step/conv_step.h"
#include "ops/gated_norm/gated_norm.h"
#include "ops/scan/scan.h"

struct delta_step_args {
    struct conv_step_args conv;
    struct scan_args scan;
    u32 z_cols, z_at; // of the gated norm; its groups are the heads
    u32 scale_step;
    f32 eps;
};
STATIC_ASSERT(sizeof(struct delta_step_args) == 128);

// Operand numbers, for the kernels. DELTA_WORK: the convolved rows, where the parts are played.
enum {
    DELTA_IN,
    DELTA_W,
    DELTA_DT,
    DELTA_BETA,
    DELTA_A,
    DELTA_DT_BIAS,
    DELTA_Z,
    DELTA_SCALE,
    DELTA_STATES,
    DELTA_WORK,
    DELTA_OUT
};

#ifdef HOST_C
#include "device/tape.h"

// The parts as they would be recorded: scan.in is conv.out; scan.out is norm.in and norm.out. Without biases,
// other gates and flags of the norm; with SCAN_DELTA; all states in one buffer.
struct delta_step {
    struct conv_step conv;
    struct scan scan;
    struct gated_norm norm;
};
void op_delta_step(struct tape *t, const struct delta_step *d);

// The commands of the parts, for devices that play them one by one.
enum { DELTA_CONV, DELTA_SCAN, DELTA_NORM, DELTA_N_PARTS };
void delta_step_parts(const struct command *c, struct command parts[DELTA_N_PARTS]);
#endif
