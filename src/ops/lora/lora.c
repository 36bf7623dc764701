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

// A zeroed target: absent operands.
static void add_target(struct tape *t, struct command *c, const struct lora_target *target)
{
    const struct lora_weight *w = target->lora;

    tape_reads_weight(t, c, w ? &w->a : NULL);
    tape_reads_weight(t, c, w ? &w->b : NULL);
    tape_reads_buffer(t, c, w ? &w->owners : NULL);
    tape_writes(t, c, target->out); // and reads it
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
    uint32_t n_ranks = lora_first_rank(args.n_ranks, args.n_targets - 1) + args.n_ranks[args.n_targets - 1];
    struct tensor work = tape_tensor(t, n_ranks, l.in.rows);
    struct command *c = tape_add(t, OP_lora, "lora", &args, sizeof args);
    tape_reads(t, c, l.in);
    tape_reads_buffer(t, c, used[0].lora->scales);
    tape_works_in(t, c, work);
    for (uint32_t i = 0; i < LORA_TARGETS; i++)
        add_target(t, c, &used[i]);
}
