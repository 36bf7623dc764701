// activate.c - checks and records the operation; see activate.h.
#include "ops/activate/activate.h"
#include "ops/ops.h"

void op_activate(struct tape *t, struct activate a)
{
    if (a.out.n_cols != a.gate.n_cols || (a.up.id && a.up.n_cols != a.gate.n_cols)) {
        tape_fail(t, "activate: gate has %u columns, up %u, out %u; they must be equal", a.gate.n_cols,
                  a.up.n_cols, a.out.n_cols);
        return;
    }
    struct activate_args args = { .n_cols = a.out.n_cols, .activation = a.activation, .gated = a.up.id != 0 };
    struct command *c = tape_add(t, OP_activate, "activate", &args, sizeof args);
    tape_reads(t, c, a.gate);
    tape_reads(t, c, a.up);
    tape_writes(t, c, a.out);
}
