// gated_norm: an RMSNorm of each group of a row's numbers, and a gate
//
//   out = norm(in) * f(z)                   f = SiLU, or sigmoid with GATED_SIGMOID
//   out = norm(in * f(z))                   with GATED_FIRST
//   norm(x) = x * scale / sqrt(mean over the group of x^2 + eps)      without scale: x
//
// A group is a head of a gated delta net (norm, then gate), or one of Mamba2's (gate, then norm); without
// scale it is the gate of attention's output. The groups have one scale in common, or each its own. in and
// out may be the same tensor. A group's result depends on the group alone.
#pragma once
#include "base/lang.h"

#define GATED_FIRST   1u
#define GATED_SIGMOID 2u

struct gated_norm_args {
    u32 n_groups, n; // n: numbers of a group
    u32 z_cols, z_at;
    u32 flags;      // GATED_*
    u32 scale_step; // from a group's scale to the next: n, or 0
    f32 eps;
    u32 reserved;
};
STATIC_ASSERT(sizeof(struct gated_norm_args) == 32);

enum { GATED_IN, GATED_Z, GATED_SCALE, GATED_OUT };

#ifdef HOST_C
#include "device/tape.h"

struct gated_norm {
    struct tensor out, in;      // [rows, n_groups * n]
    struct tensor z;            // [rows, z_cols]
    const struct weight *scale; // [n] or [n_groups * n], or NULL: no norm
    uint32_t n_groups, z_at;
    uint32_t flags; // GATED_*
    float eps;
};
void op_gated_norm(struct tape *t, struct gated_norm g);
// Fills args; false after tape_fail. For operations of which this is a part.
bool gated_norm_check(struct tape *t, const struct gated_norm *g, struct gated_norm_args *args);
#endif
