// moe: a layer's experts in one operation: route, experts_up, experts_down and the residual.
//
//   out = in + experts_down(experts_up(n), ...)      n, ids and weights as route makes them of in
//   with expert_norm: n = rmsnorm(in) * expert_norm, while the router has its own norm; without `adds`: no in
//
// The definition is the operations in turn, each as its own header has it. What they hand on (normed
// rows, ids, weights and hidden numbers) stays in the operation, so that a device may do without their rounds
// through memory, or hand it on in a form of its own. Only the ids are left where moe_parts has them, for who
// asks what was chosen. in and out may be the same. It is recorded where the device has it; else, and where
// rows must have the same bits in any batch, its parts are (models/mixture.c).
#pragma once
#include "ops/experts/experts.h"
#include "ops/route/route.h"

struct moe_args {
    struct route_args route;
    struct experts_args experts;
    u32 own_norm; // experts read rows of EXPERT_NORM
    u32 adds;     // in to the sum
};
STATIC_ASSERT(sizeof(struct moe_args) == 88);

// Operand numbers, for the kernels. All biases, ROUTER_SHARED_GATE, the shared expert's three matrices,
// EXPERT_SCALE and EXPERT_NORM may be absent.
enum {
    MOE_IN,
    MOE_NORM,
    MOE_ROUTER,
    MOE_ROUTER_BIAS,
    MOE_SELECT_BIAS,
    MOE_ROUTER_SHARED_GATE,
    MOE_GATE,
    MOE_UP,
    MOE_DOWN,
    MOE_GATE_BIAS,
    MOE_UP_BIAS,
    MOE_DOWN_BIAS,
    MOE_SHARED_GATE,
    MOE_SHARED_UP,
    MOE_SHARED_DOWN,
    MOE_EXPERT_SCALE,
    MOE_EXPERT_NORM,
    MOE_WORK,
    MOE_OUT
};

#ifdef HOST_C
#include "device/tape.h"

// The parts as they would be recorded. route.in is the operation's input, down.out its result. up.in is
// route.normed, or, with expert_norm, what rmsnorm makes of route.in; down.add is route.in, or id 0.
struct moe {
    struct route route;
    const struct weight *expert_norm; // [n_cols] fp32, or NULL
    struct experts_up up;
    struct experts_down down;
};
// Records the operation and returns true. False: this tape takes the parts.
bool op_moe(struct tape *t, const struct moe *m);

// Columns (of 4 bytes) of workspace per row.
uint32_t moe_work_cols(const struct moe_args *args);

// The commands of the parts, for devices that play them one by one. Their values lie in the workspace. The
// experts' own norm may be absent: it has no operands.
enum { MOE_ROUTE, MOE_RMSNORM, MOE_EXPERTS_UP, MOE_EXPERTS_DOWN, MOE_N_PARTS };
void moe_parts(const struct command *c, struct command parts[MOE_N_PARTS]);
#endif
