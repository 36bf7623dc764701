// attend.c - checks and records the operation; see attend.h.
#include "ops/attend/attend.h"
#include "ops/ops.h"

void op_attend(struct tape *t, struct attend a)
{
    const struct page_shape *s = &a.pages.shape;

    if (a.q.n_cols != a.out.n_cols || a.q.n_cols % s->head_dim != 0 ||
        (a.q.n_cols / s->head_dim) % s->n_kv_heads != 0) {
        tape_fail(t,
                  "attend: q has %u columns, out %u, heads of %u, %u KV heads; want equal columns and a "
                  "multiple of the KV heads",
                  a.q.n_cols, a.out.n_cols, s->head_dim, s->n_kv_heads);
        return;
    }
    if (a.sinks && (a.sinks->format != QUANT_F32 || a.sinks->layout != LAYOUT_FILE || a.sinks->n_rows != 1 ||
                    a.sinks->n_cols != a.q.n_cols / s->head_dim)) {
        tape_fail(t, "attend: sinks are [%u, %u]; want [1, %u] in F32", a.sinks->n_rows, a.sinks->n_cols,
                  a.q.n_cols / s->head_dim);
        return;
    }
    struct attend_args args = { *s, a.q.n_cols / s->head_dim, a.window, a.scale, 0 };
    struct command *c = tape_add(t, OP_attend, "attend", &args, sizeof args);
    tape_reads(t, c, a.q);
    tape_reads_buffer(t, c, a.pages.k);
    tape_reads_buffer(t, c, a.pages.v);
    tape_reads_buffer(t, c, a.pages.table);
    tape_writes(t, c, a.out);
    tape_reads_weight(t, c, a.sinks);
    if (tape_limits(t)->max_rows <= ATTEND_FEW_ROWS)
        tape_works_in(t, c, tape_tensor(t, attend_work_cols(s, args.n_heads, s->head_dim), ROWS_STEP));
}
