// layernorm.c - checks and records the operation; see layernorm.h for what it computes.
#include "ops/layernorm/layernorm.h"
#include "ops/ops.h"

void op_layernorm(struct tape *t, struct layernorm n)
{
    uint32_t n_cols = n.in.n_cols;

    if (n.scale->n_cols != n_cols || n.bias->n_cols != n_cols || n.out.n_cols != n_cols ||
        n.in.rows != n.out.rows) {
        tape_fail(t, "layernorm: in has %u columns, scale %u, bias %u, out %u; they must be equal", n_cols,
                  n.scale->n_cols, n.bias->n_cols, n.out.n_cols);
        return;
    }
    if (n_cols > 65536 || !(n.eps > 0)) {
        tape_fail(t, "layernorm: %u columns, eps %g; want at most 65536, and eps above 0", n_cols,
                  (double)n.eps);
        return;
    }
    struct layernorm_args args = { .n_cols = n_cols, .eps = n.eps, .rows = n.in.rows };
    struct command *c = tape_add(t, OP_layernorm, "layernorm", &args, sizeof args);
    tape_reads(t, c, n.in);
    tape_reads_weight(t, c, n.scale);
    tape_reads_weight(t, c, n.bias);
    tape_writes(t, c, n.out);
}
