// rmsnorm.c - checks and records the operation; see rmsnorm.h for what it computes.
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/ops.h"

static bool is_sound(struct tape *t, const struct rmsnorm *n, uint32_t n_groups)
{
    uint32_t all = n->in.n_cols, n_cols = all / n_groups;

    if (n_cols * n_groups != all || (n->scale && n->scale->n_cols != n_cols) || n->out.n_cols != all ||
        n->in.rows != n->out.rows || (n->add.id && (n->add.n_cols != all || n->add.rows != n->out.rows))) {
        tape_fail(t, "rmsnorm: in has %u columns, scale %u, out %u, in %u groups; they must be equal", all,
                  n->scale ? n->scale->n_cols : n_cols, n->out.n_cols, n_groups);
        return false;
    }
    if (n_cols > 65536 || !(n->eps > 0)) {
        tape_fail(t, "rmsnorm: %u columns, eps %g; want at most 65536, and eps above 0", n_cols,
                  (double)n->eps);
        return false;
    }
    return true;
}

void op_rmsnorm(struct tape *t, struct rmsnorm n)
{
    uint32_t n_groups = n.n_groups ? n.n_groups : 1;

    if (!is_sound(t, &n, n_groups))
        return;
    struct rmsnorm_args args = { .n_cols = n.in.n_cols / n_groups,
                                 .n_groups = n_groups,
                                 .eps = n.eps,
                                 .rows = n.in.rows,
                                 .gain = n.gain != 0 ? n.gain : 1 };
    struct command *c = tape_add(t, OP_rmsnorm, "rmsnorm", &args, sizeof args);
    tape_reads(t, c, n.in);
    tape_reads_weight(t, c, n.scale);
    tape_reads(t, c, n.add);
    tape_writes(t, c, n.out);
}
