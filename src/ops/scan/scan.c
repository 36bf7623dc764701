// scan.c - checks and records the operation; see scan.h.
#include "ops/scan/scan.h"
#include "ops/ops.h"

static bool fits(uint64_t at, uint64_t n, struct tensor v)
{
    return at + n <= v.n_cols && v.rows == ROWS_STEP;
}

static bool heads_check(struct tape *t, const struct scan *s)
{
    if (s->n_heads > 0 && s->n_k_heads > 0 && s->n_heads % s->n_k_heads == 0 && s->d_k > 0 &&
        s->d_k <= SCAN_MAX_DIM && s->d_v > 0 && s->d_v <= SCAN_MAX_DIM)
        return true;
    tape_fail(t, "scan: %u heads over %u key heads, of %u and %u numbers; want a multiple, and at most %u",
              s->n_heads, s->n_k_heads, s->d_v, s->d_k, SCAN_MAX_DIM);
    return false;
}

static bool tensors_check(struct tape *t, const struct scan *s)
{
    uint64_t n_k = (uint64_t)s->n_k_heads * s->d_k, n_v = (uint64_t)s->n_heads * s->d_v;
    bool delta = s->flags & SCAN_DELTA;

    if (fits(s->q_at, n_k, s->in) && fits(s->k_at, n_k, s->in) && fits(s->v_at, n_v, s->in) &&
        fits(s->dt_at, s->n_heads, s->dt) && (!delta || fits(s->beta_at, s->n_heads, s->beta)) &&
        fits(0, n_v, s->out) && s->out.n_cols == n_v && s->a->n_cols == s->n_heads &&
        s->dt_bias->n_cols == s->n_heads && (delta ? !s->d : s->d && s->d->n_cols == s->n_heads))
        return true;
    tape_fail(t, "scan: %u heads of %u and %u key heads of %u do not fit %u columns, steps of %u, out of %u",
              s->n_heads, s->d_v, s->n_k_heads, s->d_k, s->in.n_cols, s->dt.n_cols, s->out.n_cols);
    return false;
}

bool scan_check(struct tape *t, const struct scan *s, struct scan_args *args)
{
    uint64_t n_words = (uint64_t)s->n_heads * s->d_k * s->d_v;

    if (!heads_check(t, s) || !tensors_check(t, s))
        return false;
    if (s->state_at + n_words > s->states.n_words) {
        tape_fail(t, "scan: a state of %llu words at %u of %u", (unsigned long long)n_words, s->state_at,
                  s->states.n_words);
        return false;
    }
    *args = (struct scan_args){ .n_heads = s->n_heads,
                                .n_k_heads = s->n_k_heads,
                                .d_k = s->d_k,
                                .d_v = s->d_v,
                                .flags = s->flags,
                                .in_cols = s->in.n_cols,
                                .q_at = s->q_at,
                                .k_at = s->k_at,
                                .v_at = s->v_at,
                                .dt_cols = s->dt.n_cols,
                                .dt_at = s->dt_at,
                                .beta_cols = s->beta.n_cols,
                                .beta_at = s->beta_at,
                                .state_words = s->states.n_words,
                                .state_at = s->state_at,
                                .t_min = s->t_min,
                                .t_max = s->t_max };
    return true;
}

void op_scan(struct tape *t, struct scan s)
{
    struct scan_args args;

    if (!scan_check(t, &s, &args))
        return;
    struct command *c = tape_add(t, OP_scan, "scan", &args, sizeof args);
    tape_reads(t, c, s.in);
    tape_reads(t, c, s.dt);
    tape_reads(t, c, s.beta);
    tape_reads_weight(t, c, s.a);
    tape_reads_weight(t, c, s.dt_bias);
    tape_reads_weight(t, c, s.d);
    tape_writes_buffer(t, c, s.states.buffer, OPERAND_F32);
    tape_writes(t, c, s.out);
}
