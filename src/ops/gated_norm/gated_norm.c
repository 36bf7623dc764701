// gated_norm.c - checks and records the operation; see gated_norm.h.
#include "ops/gated_norm/gated_norm.h"
#include "ops/ops.h"

bool gated_norm_check(struct tape *t, const struct gated_norm *g, struct gated_norm_args *args)
{
    uint32_t n_cols = g->in.n_cols, n = g->n_groups ? n_cols / g->n_groups : 0,
             n_scale = g->scale ? g->scale->n_cols : n;

    if (n == 0 || n * g->n_groups != n_cols || g->out.n_cols != n_cols ||
        (uint64_t)g->z_at + n_cols > g->z.n_cols || (n_scale != n && n_scale != n_cols) ||
        g->in.rows != ROWS_STEP || g->z.rows != ROWS_STEP || g->out.rows != ROWS_STEP ||
        (g->scale && !(g->eps > 0))) {
        tape_fail(t, "gated_norm: %u groups of %u columns, a gate of %u at %u, a scale of %u, eps %g",
                  g->n_groups, n_cols, g->z.n_cols, g->z_at, n_scale, (double)g->eps);
        return false;
    }
    *args = (struct gated_norm_args){ .n_groups = g->n_groups,
                                      .n = n,
                                      .z_cols = g->z.n_cols,
                                      .z_at = g->z_at,
                                      .flags = g->flags,
                                      .scale_step = n_scale == n ? 0 : n,
                                      .eps = g->eps };
    return true;
}

void op_gated_norm(struct tape *t, struct gated_norm g)
{
    struct gated_norm_args args;

    if (!gated_norm_check(t, &g, &args))
        return;
    struct command *c = tape_add(t, OP_gated_norm, "gated_norm", &args, sizeof args);
    tape_reads(t, c, g.in);
    tape_reads(t, c, g.z);
    tape_reads_weight(t, c, g.scale);
    tape_writes(t, c, g.out);
}
