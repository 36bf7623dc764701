// shuffle.c - checks and records the operation; see shuffle.h.
#include "ops/shuffle/shuffle.h"
#include "ops/ops.h"

void op_shuffle(struct tape *t, struct shuffle s)
{
    if (s.side == 0 || s.side > 64 || s.n_across < s.side ||
        s.out.n_cols != (uint64_t)s.side * s.side * s.in.n_cols || s.out.n_cols > 1 << 20 ||
        s.in.rows != ROWS_STEP || s.out.rows != ROWS_OUTPUT) {
        tape_fail(t, "shuffle: squares of %u rows of %u columns, %u across, into %u columns", s.side,
                  s.in.n_cols, s.n_across, s.out.n_cols);
        return;
    }
    struct shuffle_args args = { .n_cols = s.in.n_cols, .side = s.side, .n_across = s.n_across };
    struct command *c = tape_add(t, OP_shuffle, "shuffle", &args, sizeof args);
    tape_reads(t, c, s.in);
    tape_writes(t, c, s.out);
}
