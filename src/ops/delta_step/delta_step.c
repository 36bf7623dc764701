// delta_step.c - records the operation, or its parts; see delta_step.h.
#include "ops/delta_step/delta_step.h"
#include "ops/ops.h"
#include "ops/parts.h"

// What the operation can be.
static bool parts_fit(const struct delta_step *d)
{
    return d->conv.flags == CONV_SILU && !d->conv.bias && d->scan.flags & SCAN_DELTA && d->norm.scale &&
           d->norm.flags == 0 && d->norm.n_groups == d->scan.n_heads && d->scan.in.id == d->conv.out.id &&
           d->norm.in.id == d->scan.out.id && d->norm.out.id == d->scan.out.id &&
           d->conv.states.buffer == d->scan.states.buffer;
}

void op_delta_step(struct tape *t, const struct delta_step *d)
{
    struct delta_step_args args = { 0 };
    struct gated_norm_args norm;

    if (!tape_fuses(t, OP_delta_step) || tape_limits(t)->invariant || !parts_fit(d)) {
        op_conv_step(t, d->conv);
        op_scan(t, d->scan);
        op_gated_norm(t, d->norm);
        return;
    }
    if (!conv_step_check(t, &d->conv, &args.conv) || !scan_check(t, &d->scan, &args.scan) ||
        !gated_norm_check(t, &d->norm, &norm))
        return;
    args.z_cols = norm.z_cols;
    args.z_at = norm.z_at;
    args.scale_step = norm.scale_step;
    args.eps = norm.eps;
    struct command *c = tape_add(t, OP_delta_step, "delta_step", &args, sizeof args);
    tape_reads(t, c, d->conv.in);
    tape_reads_weight(t, c, d->conv.w);
    tape_reads(t, c, d->scan.dt);
    tape_reads(t, c, d->scan.beta);
    tape_reads_weight(t, c, d->scan.a);
    tape_reads_weight(t, c, d->scan.dt_bias);
    tape_reads(t, c, d->norm.z);
    tape_reads_weight(t, c, d->norm.scale);
    tape_writes_buffer(t, c, d->conv.states.buffer, OPERAND_F32);
    tape_works_in(t, c, d->conv.out);
    tape_writes(t, c, d->norm.out);
}

void delta_step_parts(const struct command *c, struct command parts[DELTA_N_PARTS])
{
    const struct delta_step_args *a = (const struct delta_step_args *)c->args;
    const struct gated_norm_args norm = { .n_groups = a->scan.n_heads,
                                          .n = a->scan.d_v,
                                          .z_cols = a->z_cols,
                                          .z_at = a->z_at,
                                          .scale_step = a->scale_step,
                                          .eps = a->eps };
    const struct operand *all = c->operands;
    struct command *conv = &parts[DELTA_CONV], *scan = &parts[DELTA_SCAN], *gated = &parts[DELTA_NORM];

    *conv = PART_OF(c, conv_step, a->conv);
    conv->n_operands = CONV_OUT + 1;
    conv->operands[CONV_IN] = all[DELTA_IN];
    conv->operands[CONV_W] = all[DELTA_W];
    conv->operands[CONV_STATES] = all[DELTA_STATES];
    conv->operands[CONV_OUT] = all[DELTA_WORK];
    *scan = PART_OF(c, scan, a->scan);
    scan->n_operands = SCAN_OUT + 1;
    scan->operands[SCAN_IN] = all[DELTA_WORK];
    scan->operands[SCAN_DT] = all[DELTA_DT];
    scan->operands[SCAN_BETA] = all[DELTA_BETA];
    scan->operands[SCAN_A] = all[DELTA_A];
    scan->operands[SCAN_DT_BIAS] = all[DELTA_DT_BIAS];
    scan->operands[SCAN_STATES] = all[DELTA_STATES];
    scan->operands[SCAN_OUT] = all[DELTA_OUT];
    *gated = PART_OF(c, gated_norm, norm);
    gated->n_operands = GATED_OUT + 1;
    gated->operands[GATED_IN] = gated->operands[GATED_OUT] = all[DELTA_OUT];
    gated->operands[GATED_Z] = all[DELTA_Z];
    gated->operands[GATED_SCALE] = all[DELTA_SCALE];
}
