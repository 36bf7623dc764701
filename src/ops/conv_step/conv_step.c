// conv_step.c - checks and records the operation; see conv_step.h.
#include "ops/conv_step/conv_step.h"
#include "ops/ops.h"

static bool lies_within(const struct conv_step *c, uint32_t at)
{
    return (uint64_t)at + c->out.n_cols <= c->in.n_cols;
}

bool conv_step_check(struct tape *t, const struct conv_step *c, struct conv_step_args *args)
{
    uint32_t n = c->out.n_cols, kernel = n ? c->w->n_cols / n : 0;

    if (kernel < 2 || kernel > CONV_MAX_KERNEL || c->w->n_cols != n * kernel || c->w->n_rows != 1 ||
        (c->bias && c->bias->n_cols != n)) {
        tape_fail(t, "conv_step: %u weights for %u channels; want 2 to %u for each", c->w->n_cols, n,
                  CONV_MAX_KERNEL);
        return false;
    }
    if (!lies_within(c, c->at) || (c->flags & CONV_FACTOR && !lies_within(c, c->factor_at)) ||
        (c->flags & CONV_GATE && !lies_within(c, c->gate_at)) || c->in.rows != ROWS_STEP ||
        c->out.rows != ROWS_STEP) {
        tape_fail(t, "conv_step: parts of %u columns at %u, %u and %u of %u", n, c->at, c->factor_at,
                  c->gate_at, c->in.n_cols);
        return false;
    }
    if ((uint64_t)c->state_at + conv_step_words(n, kernel) > c->states.n_words) {
        tape_fail(t, "conv_step: a state of %u words at %u of %u", conv_step_words(n, kernel), c->state_at,
                  c->states.n_words);
        return false;
    }
    *args = (struct conv_step_args){ .n_channels = n,
                                     .kernel_size = kernel,
                                     .flags = c->flags,
                                     .in_cols = c->in.n_cols,
                                     .at = c->at,
                                     .factor_at = c->factor_at,
                                     .gate_at = c->gate_at,
                                     .state_words = c->states.n_words,
                                     .state_at = c->state_at };
    return true;
}

void op_conv_step(struct tape *t, struct conv_step c)
{
    struct conv_step_args args;

    if (!conv_step_check(t, &c, &args))
        return;
    struct command *command = tape_add(t, OP_conv_step, "conv_step", &args, sizeof args);
    tape_reads(t, command, c.in);
    tape_reads_weight(t, command, c.w);
    tape_reads_weight(t, command, c.bias);
    tape_writes_buffer(t, command, c.states.buffer, OPERAND_F32);
    tape_writes(t, command, c.out);
}
