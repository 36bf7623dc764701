// matmul.c - checks and records the operations; see matmul.h.
#include "ops/matmul/matmul.h"
#include "ops/activate/activate.h"
#include "ops/ops.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/trellis/trellis.h"

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

bool matmul_vector_fits(struct tape *t, const char *op, const struct weight *w, uint32_t n)
{
    if (!w || (w->format == QUANT_F32 && w->layout == LAYOUT_FILE && w->n_rows == 1 && w->n_cols == n))
        return true;
    tape_fail(t, "%s: %s has %u rows of %u numbers; want one row of %u in F32", op, w->name, w->n_rows,
              w->n_cols, n);
    return false;
}

bool matmul_is_plain(const struct weight *w, uint32_t n_rows, uint32_t n_cols)
{
    return w && !w->lora && !trellis_multiplies(w) && w->n_rows == n_rows && w->n_cols == n_cols &&
           n_cols % quant_info(w->format)->block_elements == 0;
}

static bool is_sound(struct tape *t, const char *op, const struct matmul *m)
{
    if (!matmul_fits(t, op, m->w, m->in.n_cols, m->out.n_cols))
        return false;
    if (m->in.rows == m->out.rows &&
        (!m->add.id || (m->add.n_cols == m->out.n_cols && m->add.rows == m->out.rows)) &&
        (!m->bias || m->bias->n_cols == m->out.n_cols))
        return true;
    tape_fail(t, "%s: out has %u columns; bias and add must have as many and the same rows", op,
              m->out.n_cols);
    return false;
}

static struct matmul_args args_of(struct tape *t, const struct matmul *m)
{
    return (struct matmul_args){ m->w->n_rows, m->w->n_cols, m->in.rows, tape_limits(t)->exact };
}

static void add_operands(struct tape *t, struct command *c, const struct matmul *m, struct tensor work)
{
    tape_reads(t, c, m->in);
    tape_reads_weight(t, c, m->w);
    tape_reads_weight(t, c, m->bias);
    tape_reads(t, c, m->add);
    tape_works_in(t, c, work);
    tape_writes(t, c, m->out);
}

void matmul_record_plain(struct tape *t, struct matmul m)
{
    if (!is_sound(t, "matmul", &m))
        return;
    if (trellis_multiplies(m.w)) {
        op_trellis(t, &m, 1);
        return;
    }
    struct matmul_args args = args_of(t, &m);
    struct tensor work = tape_tensor(t, matmul_work_cols(m.w->n_cols), m.in.rows);
    add_operands(t, tape_add(t, OP_matmul, "matmul", &args, sizeof args), &m, work);
}

void matmul_record_joined(struct tape *t, const struct matmul *m, uint32_t n)
{
    bool joins = trellis_joins(t, m, n);

    for (uint32_t i = 0; i < n; i++)
        if (!joins)
            matmul_record_plain(t, m[i]);
        else if (!is_sound(t, "matmul", &m[i]))
            return;
    if (joins)
        op_trellis(t, m, n);
}

static void record_adapted(struct tape *t, const struct matmul *m, const struct lora *l)
{
    if (!is_sound(t, "matmul_adapted", m))
        return;
    struct matmul_adapted_args args = { args_of(t, m), lora_adapted_args(l) };
    struct tensor work = tape_tensor(t, matmul_work_cols(m->w->n_cols), m->in.rows);
    struct command *c = tape_add(t, OP_matmul_adapted, "matmul_adapted", &args, sizeof args);
    add_operands(t, c, m, work);
    lora_add_operands(t, c, l);
}

void op_matmul(struct tape *t, struct matmul m)
{
    struct lora l = { .in = m.in, .targets = { { m.out, m.w->lora } } };

    if (!trellis_multiplies(m.w) && lora_fuses(t, OP_matmul_adapted, &l)) {
        record_adapted(t, &m, &l);
        return;
    }
    matmul_record_plain(t, m);
    op_lora(t, l);
}

void op_matmul_activated(struct tape *t, struct matmul m, enum activation activation)
{
    if (!is_sound(t, "matmul_activated", &m))
        return;
    if (m.add.id || m.out.rows != ROWS_STEP) {
        tape_fail(t, "matmul_activated: nothing is added to its result, which has the step's rows");
        return;
    }
    if (!tape_fuses(t, OP_matmul_activated) || m.w->lora || trellis_multiplies(m.w) ||
        activation > ACTIVATION_GELU_TANH) { // not in epilogues
        op_matmul(t, m);
        op_activate(t, (struct activate){ .out = m.out, .gate = m.out, .activation = activation });
        return;
    }
    struct matmul_activated_args args = { .product = args_of(t, &m), .activation = activation };
    struct tensor work = tape_tensor(t, matmul_work_cols(m.w->n_cols), m.in.rows);
    add_operands(t, tape_add(t, OP_matmul_activated, "matmul_activated", &args, sizeof args), &m, work);
}

// Unlike matrices, and those with adapters, are products of their own.
static bool three_fuse(const struct tape *t, const struct matmul_three *m)
{
    bool fuses = tape_fuses(t, OP_matmul_three);

    for (uint32_t i = 0; i < 3; i++)
        fuses = fuses && m->w[i]->format == m->w[0]->format && m->w[i]->n_rows == m->w[0]->n_rows &&
                !m->w[i]->lora && !trellis_multiplies(m->w[i]);
    return fuses;
}

void op_matmul_three(struct tape *t, struct matmul_three m)
{
    bool fuses = three_fuse(t, &m);

    for (uint32_t i = 0; i < 3; i++) {
        struct matmul one = { .out = m.out[i], .in = m.in, .w = m.w[i], .bias = m.bias[i] };
        if (!fuses)
            op_matmul(t, one);
        else if (!is_sound(t, "matmul_three", &one))
            return;
    }
    if (!fuses)
        return;
    struct matmul_args args = args_of(t, &(struct matmul){ .w = m.w[0], .in = m.in });
    struct tensor work = tape_tensor(t, matmul_work_cols(m.w[0]->n_cols), m.in.rows);
    struct command *c = tape_add(t, OP_matmul_three, "matmul_three", &args, sizeof args);
    tape_reads(t, c, m.in);
    for (uint32_t i = 0; i < 3; i++)
        tape_reads_weight(t, c, m.w[i]);
    for (uint32_t i = 0; i < 3; i++)
        tape_reads_weight(t, c, m.bias[i]);
    tape_works_in(t, c, work);
    for (uint32_t i = 0; i < 3; i++)
        tape_writes(t, c, m.out[i]);
}

static void record_normed_parts(struct tape *t, const struct matmul_normed *m)
{
    struct tensor n = tape_tensor(t, m->in.n_cols, ROWS_STEP);

    op_rmsnorm(t, (struct rmsnorm){ .out = n, .in = m->in, .scale = m->norm, .eps = m->eps });
    if (m->v)
        op_matmul(t, (struct matmul){ .out = m->more, .in = n, .w = m->v });
    if (m->u)
        op_matmul(t, (struct matmul){ .out = m->last, .in = n, .w = m->u });
    op_matmul(t, (struct matmul){ .out = m->out, .in = n, .w = m->w });
}

static bool normed_fits(struct tape *t, const struct weight *w, uint32_t n_cols, struct tensor out)
{
    return !w || matmul_fits(t, "matmul_normed", w, n_cols, out.n_cols);
}

// Rows of several products are paired, so each has an even number.
static bool normed_fuses(const struct tape *t, const struct matmul_normed *m)
{
    const struct weight *all[] = { m->w, m->v, m->u };
    bool fuses = tape_fuses(t, OP_matmul_normed);

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        fuses =
            fuses &&
            (!all[i] || (!all[i]->lora && !trellis_multiplies(all[i]) && (!m->v || all[i]->n_rows % 2 == 0)));
    return fuses;
}

void op_matmul_normed(struct tape *t, struct matmul_normed m)
{
    uint32_t n_cols = m.in.n_cols;

    if (!normed_fits(t, m.w, n_cols, m.out) || !normed_fits(t, m.v, n_cols, m.more) ||
        !normed_fits(t, m.u, n_cols, m.last))
        return;
    if (m.norm->n_cols != n_cols) {
        tape_fail(t, "matmul_normed: in has %u columns, norm %u; they must be equal", n_cols, m.norm->n_cols);
        return;
    }
    if (!normed_fuses(t, &m)) {
        record_normed_parts(t, &m);
        return;
    }
    struct matmul_normed_args args = { .n_cols = n_cols,
                                       .n_rows = m.w->n_rows,
                                       .n_more = m.v ? m.v->n_rows : 0,
                                       .n_last = m.u ? m.u->n_rows : 0,
                                       .eps = m.eps,
                                       .exact = tape_limits(t)->exact };
    struct tensor work = tape_tensor(t, 2 * matmul_work_cols(m.w->n_cols), ROWS_STEP);
    struct command *c = tape_add(t, OP_matmul_normed, "matmul_normed", &args, sizeof args);
    tape_reads(t, c, m.in);
    tape_reads_weight(t, c, m.norm);
    tape_reads_weight(t, c, m.w);
    tape_reads_weight(t, c, m.v);
    tape_reads_weight(t, c, m.u);
    tape_works_in(t, c, work);
    tape_writes(t, c, m.out);
    tape_writes(t, c, m.more);
    tape_writes(t, c, m.last);
}
