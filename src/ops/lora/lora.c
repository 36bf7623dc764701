// lora.c - checks and records the operation; see lora.h.
#include "ops/lora/lora.h"
#include "ops/ops.h"

static bool target_fits(struct tape *t, const struct lora *l, const struct lora_target *target)
{
    const struct lora_weight *w = target->lora;

    if (w->a.n_cols == l->in.n_cols && w->b.n_cols == target->out.n_cols && w->a.n_rows == w->n_ranks &&
        w->b.n_rows == w->n_ranks && w->owners.bytes == w->n_ranks * 4ull && target->out.rows == l->in.rows)
        return true;
    tape_fail(t, "lora: %s is [%u, %u] and [%u, %u], of %u ranks, for %u columns in and %u out", w->a.name,
              w->a.n_rows, w->a.n_cols, w->b.n_rows, w->b.n_cols, w->n_ranks, l->in.n_cols,
              target->out.n_cols);
    return false;
}

// NULL: absent operands.
static void add_matrices(struct tape *t, struct command *c, const struct lora_weight *w)
{
    tape_reads_weight(t, c, w ? &w->a : NULL);
    tape_reads_weight(t, c, w ? &w->b : NULL);
    tape_reads_buffer(t, c, w ? &w->owners : NULL);
}

bool lora_adds(const struct lora *l)
{
    return l->targets[0].lora || l->targets[1].lora || l->targets[2].lora;
}

struct adapted_args lora_adapted_args(const struct lora *l)
{
    struct adapted_args args = { 0 };

    for (uint32_t i = 0; i < LORA_TARGETS; i++) {
        const struct lora_weight *w = l->targets[i].lora;
        args.n_ranks[i] = w ? w->n_ranks : 0;
        args.n_adapters = w ? w->n_adapters : args.n_adapters;
    }
    return args;
}

static uint32_t n_ranks_of_all(const uint32_t n_ranks[LORA_TARGETS])
{
    return lora_first_rank(n_ranks, LORA_TARGETS - 1) + n_ranks[LORA_TARGETS - 1];
}

bool lora_fuses(const struct tape *t, uint32_t op, const struct lora *l)
{
    const struct tape_limits *limits = tape_limits(t);
    struct adapted_args args = lora_adapted_args(l);
    uint32_t rows = l->in.rows == ROWS_STEP ? limits->max_rows : limits->max_outputs;

    return lora_adds(l) && tape_fuses(t, op) && rows == 1 && !limits->invariant &&
           n_ranks_of_all(args.n_ranks) <= ADAPTED_MOST_RANKS && l->in.n_cols <= ADAPTED_MOST_COLS;
}

void lora_add_operands(struct tape *t, struct command *c, const struct lora *l)
{
    struct adapted_args args = lora_adapted_args(l);
    const struct buffer *scales = NULL;

    for (uint32_t i = 0; i < LORA_TARGETS; i++) {
        const struct lora_target *target = &l->targets[i];
        if (target->lora && !target_fits(t, l, target))
            return;
        scales = target->lora ? target->lora->scales : scales;
    }
    tape_reads_buffer(t, c, scales);
    tape_works_in(t, c, tape_tensor(t, n_ranks_of_all(args.n_ranks), l->in.rows));
    for (uint32_t i = 0; i < LORA_TARGETS; i++)
        add_matrices(t, c, l->targets[i].lora);
}

void op_lora(struct tape *t, struct lora l)
{
    struct lora_args args = { .n_cols = l.in.n_cols, .rows = l.in.rows };
    struct lora_target used[LORA_TARGETS] = { { { 0 }, NULL } };

    for (uint32_t i = 0; i < LORA_TARGETS; i++) {
        const struct lora_target *target = &l.targets[i];
        if (!target->lora)
            continue;
        if (!target_fits(t, &l, target))
            return;
        args.n_ranks[args.n_targets] = target->lora->n_ranks;
        args.n_out[args.n_targets] = target->out.n_cols;
        args.n_adapters = target->lora->n_adapters;
        used[args.n_targets++] = *target;
    }
    if (args.n_targets == 0)
        return;
    struct tensor work = tape_tensor(t, n_ranks_of_all(args.n_ranks), l.in.rows);
    struct command *c = tape_add(t, OP_lora, "lora", &args, sizeof args);
    tape_reads(t, c, l.in);
    tape_reads_buffer(t, c, used[0].lora->scales);
    tape_works_in(t, c, work);
    for (uint32_t i = 0; i < LORA_TARGETS; i++) {
        add_matrices(t, c, used[i].lora);
        tape_writes(t, c, used[i].out); // and reads it
    }
}
