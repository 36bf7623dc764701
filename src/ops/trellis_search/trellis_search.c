// trellis_search.c - records the operation; see trellis_search.h.
#include "ops/trellis_search/trellis_search.h"
#include "ops/ops.h"

static bool is_shape(const struct trellis_search *s)
{
    return s->n_in && s->n_in % EXL3_TILE == 0 && s->n_out && s->n_out % (2 * EXL3_TILE) == 0 && s->bits &&
           s->bits <= EXL3_MAX_BITS;
}

static bool has_room(const struct trellis_search *s, uint32_t n_matrices)
{
    uint64_t n = (uint64_t)n_matrices * s->n_in;

    return s->w->bytes >= 4 * n * s->n_out && s->missed->bytes >= 4 * n * s->n_out &&
           s->l->bytes >= 4 * n * s->n_in &&
           s->codes->bytes >= n_matrices * exl3_codes_bytes(s->n_in, s->n_out, s->bits);
}

void op_trellis_search(struct tape *t, const struct trellis_search *s)
{
    struct trellis_search_args args = { s->n_in, s->n_out, s->bits, (u32)s->codebook };

    if (!is_shape(s) || !has_room(s, tape_limits(t)->max_rows)) {
        tape_fail(t,
                  "trellis_search: [%u, %u] in %u bits; want multiples of 16 and 32, 1 to 8 bits, and room",
                  s->n_in, s->n_out, s->bits);
        return;
    }
    if (!tape_supports(t, OP_trellis_search)) {
        tape_fail(t, "trellis_search: this device has no kernel for it; the CPU and CUDA have");
        return;
    }
    struct command *c = tape_add(t, OP_trellis_search, "trellis_search", &args, sizeof args);
    tape_reads_buffer(t, c, s->w);
    tape_reads_buffer(t, c, s->l);
    tape_writes_buffer(t, c, s->missed, OPERAND_F32);
    tape_writes_buffer(t, c, s->codes, OPERAND_U32);
}
