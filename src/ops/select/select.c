// select.c - checks and records the operation; see select.h.
#include "ops/select/select.h"
#include "ops/ops.h"

void op_select(struct tape *t, struct select s)
{
    if (s.in.n_cols != s.out.n_cols || s.in.rows != ROWS_STEP || s.out.rows != ROWS_OUTPUT) {
        tape_fail(t, "select: in has %u columns, out %u; they must be equal, and out holds output rows",
                  s.in.n_cols, s.out.n_cols);
        return;
    }
    struct select_args args = { s.in.n_cols, 0 };
    struct command *c = tape_add(t, OP_select, "select", &args, sizeof args);
    tape_reads(t, c, s.in);
    tape_writes(t, c, s.out);
}
