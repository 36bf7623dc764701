// patches.c - checks and records the operation; see patches.h.
#include "ops/patches/patches.h"
#include "ops/ops.h"

void op_patches(struct tape *t, struct patches p)
{
    if (p.patch == 0 || p.patch > p.side || p.side > 8192 || p.out.n_cols < 3 * p.patch * p.patch ||
        p.out.rows != ROWS_STEP) {
        tape_fail(t, "patches: %u columns for patches of %u pixels in tiles of %u", p.out.n_cols, p.patch,
                  p.side);
        return;
    }
    if (p.table->n_rows * p.table->n_cols != 3 * 256 || p.table->format != QUANT_F32) {
        tape_fail(t, "patches: the table is [%u, %u]; want [3, 256] in F32", p.table->n_rows,
                  p.table->n_cols);
        return;
    }
    struct patches_args args = {
        .side = p.side, .patch = p.patch, .n_across = p.side / p.patch, .n_cols = p.out.n_cols
    };
    struct command *c = tape_add(t, OP_patches, "patches", &args, sizeof args);
    tape_reads_buffer(t, c, p.pixels);
    tape_reads_weight(t, c, p.table);
    tape_writes(t, c, p.out);
}
