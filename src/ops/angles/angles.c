// angles.c - checks and records the operation; see angles.h.
#include "ops/angles/angles.h"
#include "ops/ops.h"

void op_angles(struct tape *t, struct angles a)
{
    if (a.out.n_cols != 2 * a.frequencies->n_cols) {
        tape_fail(t, "angles: %u frequencies, out has %u columns; want twice as many", a.frequencies->n_cols,
                  a.out.n_cols);
        return;
    }
    struct angles_args args = { .n_pairs = a.frequencies->n_cols, .scale = a.scale };
    struct command *c = tape_add(t, OP_angles, "angles", &args, sizeof args);
    tape_reads_weight(t, c, a.frequencies);
    tape_writes(t, c, a.out);
}
