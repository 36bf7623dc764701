// activate.c - checks and records the operation; see activate.h.
#include "ops/activate/activate.h"
#include "ops/ops.h"

void op_activate(struct tape *t, struct activate a)
{
    if (a.out.n_cols != a.gate.n_cols || a.out.rows != a.gate.rows ||
        (a.up.id && (a.up.rows != a.gate.rows || (uint64_t)a.up_first + a.gate.n_cols > a.up.n_cols))) {
        tape_fail(t, "activate: gate has %u columns, up %u, out %u; want equal ones, and up's inside",
                  a.gate.n_cols, a.up.n_cols, a.out.n_cols);
        return;
    }
    if (a.activation == ACTIVATION_CAP && !(a.limit > 0)) {
        tape_fail(t, "activate: a limit of %g; want one above 0", (double)a.limit);
        return;
    }
    struct activate_args args = { .n_cols = a.out.n_cols,
                                  .activation = a.activation,
                                  .gated = a.up.id != 0,
                                  .rows = a.gate.rows,
                                  .up_cols = a.up.n_cols,
                                  .up_first = a.up_first,
                                  .limit = a.limit };
    struct command *c = tape_add(t, OP_activate, "activate", &args, sizeof args);
    tape_reads(t, c, a.gate);
    tape_reads(t, c, a.up);
    tape_writes(t, c, a.out);
}
