// trellis.c - records the operation; see trellis.h.
#include "ops/trellis/trellis.h"
#include "ops/ops.h"

// matmul has checked the shapes.
void op_trellis(struct tape *t, struct matmul m)
{
    const struct weight *w = m.w;
    uint32_t n_in = exl3_padded(w->n_cols), n_out = exl3_padded(w->n_rows);
    struct trellis_args args = { .n_rows = w->n_rows,
                                 .n_cols = w->n_cols,
                                 .rows = m.in.rows,
                                 .exact = tape_limits(t)->exact,
                                 .bits = exl3_bits(w->bytes, n_in, n_out),
                                 .codebook = (u32)w->format - QUANT_EXL3 };

    if (args.bits == 0) {
        tape_fail(t, "trellis: %s has %llu bytes; [%u, %u] of 1 to 8 bits is none of that size", w->name,
                  (unsigned long long)w->bytes, n_out, n_in);
        return;
    }
    struct tensor work = tape_tensor(t, n_in, m.in.rows);
    struct command *c = tape_add(t, OP_trellis, "trellis", &args, sizeof args);
    tape_reads(t, c, m.in);
    tape_reads_weight(t, c, w);
    tape_reads_weight(t, c, m.bias);
    tape_reads(t, c, m.add);
    tape_works_in(t, c, work);
    tape_writes(t, c, m.out);
}
