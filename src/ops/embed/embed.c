// embed.c - checks and records the operation; see embed.h.
#include "ops/embed/embed.h"
#include "ops/ops.h"

void op_embed(struct tape *t, struct embed e)
{
    if (e.table->n_cols != e.out.n_cols) {
        tape_fail(t, "embed: the table has %u columns, out %u; they must be equal", e.table->n_cols,
                  e.out.n_cols);
        return;
    }
    struct embed_args args = { .n_cols = e.table->n_cols,
                               .n_tokens = e.table->n_rows,
                               .history_stride = e.history_stride,
                               .scale = e.by == EMBED_TOKEN ? e.scale : 1,
                               .by = e.by,
                               .n_pooled = e.pool
                                               ? (uint32_t)(e.pool->bytes / (e.table->n_cols * sizeof(float)))
                                               : 0 };
    struct command *c = tape_add(t, OP_embed, "embed", &args, sizeof args);
    tape_reads_weight(t, c, e.table);
    tape_reads_buffer(t, c, e.history);
    tape_reads_buffer(t, c, e.pool);
    tape_writes(t, c, e.out);
}
