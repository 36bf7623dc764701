// scale_add.c - checks and records the operation; see scale_add.h.
#include "ops/scale_add/scale_add.h"
#include "ops/ops.h"

void op_scale_add(struct tape *t, struct scale_add s)
{
    uint32_t n = s.out.n_cols;

    if (s.in.n_cols != n || s.add.n_cols != n || s.scale->n_cols != n || s.scale->n_rows != 1 ||
        s.in.rows != ROWS_STEP || s.add.rows != ROWS_STEP || s.out.rows != ROWS_STEP) {
        tape_fail(
            t,
            "scale_add: in has %u columns, scale %u, add %u, out %u; they must be equal, in rows of the "
            "step",
            s.in.n_cols, s.scale->n_cols, s.add.n_cols, n);
        return;
    }
    struct scale_add_args args = { .n_cols = n };
    struct command *c = tape_add(t, OP_scale_add, "scale_add", &args, sizeof args);
    tape_reads(t, c, s.in);
    tape_reads_weight(t, c, s.scale);
    tape_reads(t, c, s.add);
    tape_writes(t, c, s.out);
}
