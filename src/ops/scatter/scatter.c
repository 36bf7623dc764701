// scatter.c - checks and records the operation; see scatter.h.
#include "ops/scatter/scatter.h"
#include "ops/ops.h"

void op_scatter(struct tape *t, struct scatter s)
{
    uint64_t n_rows = s.pool->bytes / (s.in.n_cols * sizeof(float));

    if (s.in.rows != ROWS_OUTPUT || s.places->bytes < (uint64_t)tape_limits(t)->max_outputs * 4 ||
        n_rows < 1 || n_rows > INT32_MAX) {
        tape_fail(t,
                  "scatter: rows of %u columns into a pool of %llu, with %llu bytes of places for %u outputs",
                  s.in.n_cols, (unsigned long long)n_rows, (unsigned long long)s.places->bytes,
                  tape_limits(t)->max_outputs);
        return;
    }
    struct scatter_args args = { .n_cols = s.in.n_cols, .n_rows = (uint32_t)n_rows };
    struct command *c = tape_add(t, OP_scatter, "scatter", &args, sizeof args);
    tape_reads(t, c, s.in);
    tape_reads_buffer(t, c, s.places);
    tape_writes_buffer(t, c, s.pool, OPERAND_F32);
}
