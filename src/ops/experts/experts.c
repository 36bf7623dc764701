// experts.c - checks and records the two operations; see experts.h.
#include "ops/experts/experts.h"
#include "base/err.h"
#include "ops/matmul/matmul.h"
#include "ops/ops.h"

static bool columns_fit(struct tape *t, const char *op, struct tensor v, uint32_t n_cols)
{
    if (v.rows == ROWS_STEP && v.n_cols == n_cols)
        return true;
    tape_fail(t, "%s: a value has %u columns; want %u, and a row for each of the step", op, v.n_cols, n_cols);
    return false;
}

static bool both_or_neither(struct tape *t, const struct weight *a, const struct weight *b, const char *what)
{
    if (!a == !b)
        return true;
    tape_fail(t, "experts_up: %s of gate or up is missing; want both or neither", what);
    return false;
}

static bool has_kernels(struct tape *t, uint32_t op)
{
    if (tape_supports(t, op))
        return true;
    tape_fail(t, "this model's experts have no kernels on this device yet; use %s cpu", err_option("device"));
    return false;
}

// The experts' matrices hold whole experts.
static bool parts_whole(struct tape *t, const char *op, const struct weight *w, uint32_t n_experts)
{
    if (n_experts > 0 && w->n_rows % n_experts == 0)
        return true;
    tape_fail(t, "%s: %s has %u rows, no multiple of %u experts", op, w->name, w->n_rows, n_experts);
    return false;
}

static bool up_fits(struct tape *t, const struct experts_up *x, const struct experts_args *a)
{
    static const char op[] = "experts_up";

    return matmul_fits(t, op, x->gate, a->n_cols, a->n_experts * a->n_ffn) &&
           matmul_fits(t, op, x->up, a->n_cols, a->n_experts * a->n_ffn) &&
           both_or_neither(t, x->gate_bias, x->up_bias, "a bias") &&
           both_or_neither(t, x->shared_gate, x->shared_up, "the shared expert's matrix") &&
           matmul_vector_fits(t, op, x->gate_bias, a->n_experts * a->n_ffn) &&
           matmul_vector_fits(t, op, x->up_bias, a->n_experts * a->n_ffn) &&
           (!x->shared_gate || (matmul_fits(t, op, x->shared_gate, a->n_cols, a->n_shared) &&
                                matmul_fits(t, op, x->shared_up, a->n_cols, a->n_shared))) &&
           columns_fit(t, op, x->in, a->n_cols) && columns_fit(t, op, x->ids, a->n_slots) &&
           columns_fit(t, op, x->out, experts_hidden_cols(a->n_slots, a->n_ffn, a->n_shared));
}

bool experts_up_check(struct tape *t, const struct experts_up *x, struct experts_args *args)
{
    if (!has_kernels(t, OP_experts_up) || !parts_whole(t, "experts_up", x->gate, x->n_experts))
        return false;
    *args = (struct experts_args){ .n_cols = x->in.n_cols,
                                   .n_ffn = x->gate->n_rows / x->n_experts,
                                   .n_shared = x->shared_gate ? x->shared_gate->n_rows : 0,
                                   .n_experts = x->n_experts,
                                   .n_slots = x->ids.n_cols,
                                   .activation = x->activation,
                                   .limit = x->limit,
                                   .exact = tape_limits(t)->exact };
    return up_fits(t, x, args);
}

void op_experts_up(struct tape *t, struct experts_up x)
{
    struct experts_args args;

    if (!experts_up_check(t, &x, &args))
        return;
    struct tensor work = tape_tensor(t, experts_up_work_cols(args.n_slots, args.n_cols), ROWS_STEP);
    struct command *c = tape_add(t, OP_experts_up, "experts_up", &args, sizeof args);
    tape_reads(t, c, x.in);
    tape_reads(t, c, x.ids);
    tape_reads_weight(t, c, x.gate);
    tape_reads_weight(t, c, x.up);
    tape_reads_weight(t, c, x.gate_bias);
    tape_reads_weight(t, c, x.up_bias);
    tape_reads_weight(t, c, x.shared_gate);
    tape_reads_weight(t, c, x.shared_up);
    tape_works_in(t, c, work);
    tape_writes(t, c, x.out);
}

static bool down_fits(struct tape *t, const struct experts_down *x, const struct experts_args *a)
{
    static const char op[] = "experts_down";

    return matmul_fits(t, op, x->down, a->n_ffn, a->n_experts * a->n_cols) &&
           matmul_vector_fits(t, op, x->bias, a->n_experts * a->n_cols) &&
           (!x->shared || matmul_fits(t, op, x->shared, a->n_shared, a->n_cols)) &&
           columns_fit(t, op, x->in, experts_hidden_cols(a->n_slots, a->n_ffn, a->n_shared)) &&
           columns_fit(t, op, x->weights, a->n_slots + 1) &&
           (!x->add.id || columns_fit(t, op, x->add, a->n_cols)) && columns_fit(t, op, x->ids, a->n_slots) &&
           columns_fit(t, op, x->out, a->n_cols);
}

bool experts_down_check(struct tape *t, const struct experts_down *x, struct experts_args *args)
{
    if (!has_kernels(t, OP_experts_down) || !parts_whole(t, "experts_down", x->down, x->n_experts))
        return false;
    *args = (struct experts_args){ .n_cols = x->out.n_cols,
                                   .n_ffn = x->down->n_cols,
                                   .n_shared = x->shared ? x->shared->n_cols : 0,
                                   .n_experts = x->n_experts,
                                   .n_slots = x->ids.n_cols,
                                   .exact = tape_limits(t)->exact };
    return down_fits(t, x, args);
}

void op_experts_down(struct tape *t, struct experts_down x)
{
    struct experts_args args;

    if (!experts_down_check(t, &x, &args))
        return;
    uint32_t n_work = experts_down_work_cols(args.n_slots, args.n_ffn, args.n_shared, args.n_cols);
    struct tensor work = tape_tensor(t, n_work, ROWS_STEP);
    struct command *c = tape_add(t, OP_experts_down, "experts_down", &args, sizeof args);
    tape_reads(t, c, x.in);
    tape_reads(t, c, x.ids);
    tape_reads(t, c, x.weights);
    tape_reads_weight(t, c, x.down);
    tape_reads_weight(t, c, x.bias);
    tape_reads_weight(t, c, x.shared);
    tape_reads(t, c, x.add);
    tape_works_in(t, c, work);
    tape_writes(t, c, x.out);
}
