// rmsnorm_sum.c - checks and records the operation; see rmsnorm_sum.h.
#include "ops/rmsnorm_sum/rmsnorm_sum.h"
#include "ops/ops.h"
#include "ops/rmsnorm/rmsnorm.h"

static void record_parts(struct tape *t, const struct rmsnorm_sum *s)
{
    struct tensor b = s->b_scale ? tape_tensor(t, s->b.n_cols, ROWS_STEP) : s->b,
                  n = tape_tensor(t, s->a.n_cols, ROWS_STEP);

    if (s->b_scale)
        op_rmsnorm(t, (struct rmsnorm){ .out = b, .in = s->b, .scale = s->b_scale, .eps = s->eps });
    op_rmsnorm(t, (struct rmsnorm){ .out = n, .in = s->a, .scale = s->a_scale, .add = b, .eps = s->eps });
    op_rmsnorm(
        t, (struct rmsnorm){
               .out = s->out, .in = n, .scale = s->scale, .add = s->add, .eps = s->eps, .gain = s->gain });
}

void op_rmsnorm_sum(struct tape *t, struct rmsnorm_sum s)
{
    uint32_t n = s.a.n_cols;

    if (s.b.n_cols != n || s.add.n_cols != n || s.out.n_cols != n || s.a_scale->n_cols != n ||
        s.scale->n_cols != n || (s.b_scale && s.b_scale->n_cols != n)) {
        tape_fail(t, "rmsnorm_sum: a has %u columns, b %u, add %u, out %u, scales %u and %u; must be equal",
                  n, s.b.n_cols, s.add.n_cols, s.out.n_cols, s.a_scale->n_cols, s.scale->n_cols);
        return;
    }
    if (!tape_fuses(t, OP_rmsnorm_sum)) {
        record_parts(t, &s);
        return;
    }
    struct rmsnorm_sum_args args = { .n_cols = n, .eps = s.eps, .gain = s.gain };
    struct command *c = tape_add(t, OP_rmsnorm_sum, "rmsnorm_sum", &args, sizeof args);
    tape_reads(t, c, s.a);
    tape_reads_weight(t, c, s.a_scale);
    tape_reads(t, c, s.b);
    tape_reads_weight(t, c, s.b_scale);
    tape_reads_weight(t, c, s.scale);
    tape_reads(t, c, s.add);
    tape_writes(t, c, s.out);
}
