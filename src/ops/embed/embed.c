// embed.c - checks and records the operation; see embed.h.
#include "ops/embed/embed.h"
#include "ops/ops.h"

void op_embed(struct tape *t, struct embed e)
{
    if (e.table->n_cols != e.out.n_cols) {
        tape_fail(t, "embed: the table has %u columns, out %u; they must be equal", e.table->n_cols, e.out.n_cols);
        return;
    }
    struct embed_args args = { e.table->n_cols, e.table->n_rows, e.log_stride, e.scale };
    struct command *c = tape_add(t, OP_embed, "embed", &args, sizeof args);
    tape_reads_weight(t, c, e.table);
    tape_reads_buffer(t, c, e.log);
    tape_writes(t, c, e.out);
}
