// attend_all.c - checks and records the operation; see attend_all.h.
#include "ops/attend_all/attend_all.h"
#include "ops/ops.h"

void op_attend_all(struct tape *t, struct attend_all a)
{
    uint32_t n = a.q.n_cols;

    if (a.n_heads == 0 || n % a.n_heads != 0 || n / a.n_heads > 1024 || a.k.n_cols != n || a.v.n_cols != n ||
        a.out.n_cols != n || a.q.rows != ROWS_STEP) {
        tape_fail(t,
                  "attend_all: %u heads; q has %u columns, k %u, v %u, out %u; want equal ones, at most 1024 "
                  "a head",
                  a.n_heads, n, a.k.n_cols, a.v.n_cols, a.out.n_cols);
        return;
    }
    struct attend_all_args args = { .n_heads = a.n_heads, .head_dim = n / a.n_heads, .scale = a.scale };
    struct command *c = tape_add(t, OP_attend_all, "attend_all", &args, sizeof args);
    tape_reads(t, c, a.q);
    tape_reads(t, c, a.k);
    tape_reads(t, c, a.v);
    tape_writes(t, c, a.out);
}
