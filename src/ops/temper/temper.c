// temper.c - checks and records the operation; see temper.h.
#include "ops/temper/temper.h"
#include "ops/ops.h"

void op_temper(struct tape *t, struct temper a)
{
    if (a.in.n_cols != a.out.n_cols || a.in.rows != ROWS_STEP || a.out.rows != ROWS_STEP || a.period == 0) {
        tape_fail(
            t, "temper: in has %u columns, out %u, the period is %u; want equal columns of the step's rows",
            a.in.n_cols, a.out.n_cols, a.period);
        return;
    }
    struct temper_args args = { .n_cols = a.in.n_cols, .period = a.period, .beta = a.beta };
    struct command *c = tape_add(t, OP_temper, "temper", &args, sizeof args);
    tape_reads(t, c, a.in);
    tape_writes(t, c, a.out);
}
