// attend_all.c - checks and records the operation; see attend_all.h.
#include "ops/attend_all/attend_all.h"
#include "ops/ops.h"

void op_attend_all(struct tape *t, struct attend_all a)
{
    uint32_t n = a.q.n_cols, head_dim = a.n_heads && n % a.n_heads == 0 ? n / a.n_heads : 0,
             n_kv_heads = head_dim ? a.k.n_cols / head_dim : 0;

    if (head_dim == 0 || head_dim > 1024 || n_kv_heads == 0 || a.n_heads % n_kv_heads != 0 ||
        a.k.n_cols != n_kv_heads * head_dim || a.v.n_cols != a.k.n_cols || a.out.n_cols != n ||
        a.q.rows != ROWS_STEP) {
        tape_fail(
            t,
            "attend_all: %u heads; q has %u columns, k %u, v %u, out %u; want q as wide as out, k as v, a "
            "multiple of its heads, at most 1024 a head",
            a.n_heads, n, a.k.n_cols, a.v.n_cols, a.out.n_cols);
        return;
    }
    struct attend_all_args args = { .n_heads = a.n_heads,
                                    .head_dim = head_dim,
                                    .scale = a.scale,
                                    .n_kv_heads = n_kv_heads,
                                    .reach = a.reach,
                                    .half = a.half && !tape_limits(t)->exact };
    struct command *c = tape_add(t, OP_attend_all, "attend_all", &args, sizeof args);
    tape_reads(t, c, a.q);
    tape_reads(t, c, a.k);
    tape_reads(t, c, a.v);
    tape_writes(t, c, a.out);
}
