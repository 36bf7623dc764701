// trellis.c - records the operation; see trellis.h.
#include "ops/trellis/trellis.h"
#include "ops/ops.h"

static uint32_t bits_of(const struct weight *w)
{
    return exl3_bits(w->bytes, exl3_padded(w->n_cols), exl3_padded(w->n_rows));
}

bool trellis_joins(const struct tape *t, const struct matmul *m, uint32_t n)
{
    bool joins = n <= TRELLIS_MATRICES && tape_fuses(t, OP_trellis);

    for (uint32_t i = 0; i < n; i++)
        joins = joins && trellis_multiplies(m[i].w) && m[i].w->format == m[0].w->format &&
                bits_of(m[i].w) == bits_of(m[0].w);
    return joins;
}

// matmul has checked the shapes.
void op_trellis(struct tape *t, const struct matmul *m, uint32_t n)
{
    uint32_t n_in = exl3_padded(m->w->n_cols);
    struct trellis_args args = { .n_cols = m->w->n_cols,
                                 .rows = m->in.rows,
                                 .exact = tape_limits(t)->exact,
                                 .bits = bits_of(m->w),
                                 .codebook = (u32)m->w->format - QUANT_EXL3 };

    if (args.bits == 0) {
        tape_fail(t, "trellis: %s has %llu bytes; [%u, %u] of 1 to 8 bits is none of that size", m->w->name,
                  (unsigned long long)m->w->bytes, exl3_padded(m->w->n_rows), n_in);
        return;
    }
    struct tensor work[TRELLIS_MATRICES];
    for (uint32_t i = 0; i < n; i++) {
        args.n_rows[i] = m[i].w->n_rows;
        work[i] = tape_tensor(t, n_in, m->in.rows);
    }
    struct command *c = tape_add(t, OP_trellis, "trellis", &args, sizeof args);
    tape_reads(t, c, m->in);
    for (uint32_t i = 0; i < n; i++) {
        tape_reads_weight(t, c, m[i].w);
        tape_reads_weight(t, c, m[i].bias);
        tape_reads(t, c, m[i].add);
        tape_works_in(t, c, work[i]);
        tape_writes(t, c, m[i].out);
    }
}
