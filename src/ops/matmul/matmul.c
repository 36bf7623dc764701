// matmul.c - checks and records the operation; see matmul.h.
#include "ops/matmul/matmul.h"
#include "ops/ops.h"

bool matmul_fits(struct tape *t, const char *op, const struct weight *w, uint32_t n_cols, uint32_t n_out)
{
    if (w->n_cols != n_cols || w->n_rows != n_out) {
        tape_fail(t, "%s: %s is [%u, %u]; want [%u, %u]", op, w->name, w->n_rows, w->n_cols, n_out, n_cols);
        return false;
    }
    if (n_cols % quant_info(w->format)->block_elements != 0) {
        tape_fail(t, "%s: %s has %u columns of %s; want a multiple of %u", op, w->name, n_cols,
                  quant_info(w->format)->name, quant_info(w->format)->block_elements);
        return false;
    }
    return true;
}

void op_matmul(struct tape *t, struct matmul m)
{
    if (!matmul_fits(t, "matmul", m.w, m.in.n_cols, m.out.n_cols))
        return;
    if (m.in.rows != m.out.rows || (m.add.id && (m.add.n_cols != m.out.n_cols || m.add.rows != m.out.rows)) ||
        (m.bias && m.bias->n_cols != m.out.n_cols)) {
        tape_fail(t, "matmul: out has %u columns; bias and add must have as many and the same rows",
                  m.out.n_cols);
        return;
    }
    struct matmul_args args = { m.w->n_rows, m.w->n_cols, m.in.rows, tape_limits(t)->exact };
    struct tensor work = tape_tensor(t, matmul_work_cols(m.w->n_cols), m.in.rows);
    struct command *c = tape_add(t, OP_matmul, "matmul", &args, sizeof args);
    tape_reads(t, c, m.in);
    tape_reads_weight(t, c, m.w);
    tape_reads_weight(t, c, m.bias);
    tape_reads(t, c, m.add);
    tape_works_in(t, c, work);
    tape_writes(t, c, m.out);
}
