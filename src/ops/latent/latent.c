// latent.c - checks and records the operations; see latent.h.
#include "ops/latent/latent.h"
#include <string.h>
#include "ops/matmul/matmul.h"
#include "ops/ops.h"
#include "ops/parts.h"

static bool store_fits(struct tape *t, const struct latent_store *s)
{
    const struct page_shape *shape = &s->pages.shape;
    uint32_t latent_dims = s->norm->n_cols, n_rotated = s->angles.n_cols;

    if (shape->n_kv_heads == 1 && s->in.n_cols == shape->head_dim &&
        latent_dims + n_rotated == shape->head_dim && latent_dims % 2 == 0 && n_rotated % 2 == 0)
        return true;
    tape_fail(
        t,
        "latent_store: %u columns, norm of %u, %u rotated, keys of %u, %u KV heads; want one head, and even "
        "parts that make a key",
        s->in.n_cols, latent_dims, n_rotated, shape->head_dim, shape->n_kv_heads);
    return false;
}

static struct latent_store_args store_args(const struct latent_store *s)
{
    return (struct latent_store_args){ s->pages.shape, s->norm->n_cols, s->pairs, s->eps, 0 };
}

static void add_store_operands(struct tape *t, struct command *c, const struct latent_store *s)
{
    tape_reads(t, c, s->in);
    tape_reads_weight(t, c, s->norm);
    tape_reads(t, c, s->angles);
    tape_writes_buffer(t, c, s->pages.k, page_operand_type(s->pages.shape.k_format));
    tape_reads_buffer(t, c, s->pages.table);
}

void op_latent_store(struct tape *t, struct latent_store s)
{
    if (!store_fits(t, &s))
        return;
    struct latent_store_args args = store_args(&s);
    add_store_operands(t, tape_add(t, OP_latent_store, "latent_store", &args, sizeof args), &s);
}

static bool project_fits(struct tape *t, const struct latent_project *p)
{
    uint32_t n_rotated = p->angles.id ? p->angles.n_cols : 0, n_heads = p->n_heads,
             n_rows = p->w->n_rows / n_heads, n_cols = p->w->n_cols;

    if (p->w->n_rows % n_heads == 0 && n_rotated % 2 == 0 && p->in.n_cols == n_heads * (n_cols + n_rotated) &&
        p->out.n_cols == n_heads * (n_rows + n_rotated))
        return matmul_fits(t, "latent_project", p->w, n_cols, n_heads * n_rows);
    tape_fail(t,
              "latent_project: %s is [%u, %u], in has %u columns, out %u, %u rotated; these do not fit "
              "%u heads",
              p->w->name, p->w->n_rows, n_cols, p->in.n_cols, p->out.n_cols, n_rotated, n_heads);
    return false;
}

static struct latent_project_args project_args(struct tape *t, const struct latent_project *p)
{
    return (struct latent_project_args){ p->n_heads,   p->w->n_rows / p->n_heads,
                                         p->w->n_cols, p->angles.id ? p->angles.n_cols : 0,
                                         p->pairs,     tape_limits(t)->exact,
                                         { 0 } };
}

static struct tensor project_work(struct tape *t, const struct latent_project *p)
{
    return tape_tensor(t, latent_project_work_cols(p->n_heads, p->w->n_cols), ROWS_STEP);
}

void op_latent_project(struct tape *t, struct latent_project p)
{
    if (!project_fits(t, &p))
        return;
    struct latent_project_args args = project_args(t, &p);
    struct tensor work = project_work(t, &p);
    struct command *c = tape_add(t, OP_latent_project, "latent_project", &args, sizeof args);
    tape_reads(t, c, p.in);
    tape_reads_weight(t, c, p.w);
    tape_reads(t, c, p.angles);
    tape_works_in(t, c, work);
    tape_writes(t, c, p.out);
}

void op_latent_qk(struct tape *t, struct latent_store s, struct latent_project p)
{
    if (!tape_fuses(t, OP_latent_qk)) {
        op_latent_store(t, s);
        op_latent_project(t, p);
        return;
    }
    if (!store_fits(t, &s) || !project_fits(t, &p))
        return;
    struct latent_qk_args args = { store_args(&s), project_args(t, &p) };
    struct tensor work = project_work(t, &p);
    struct command *c = tape_add(t, OP_latent_qk, "latent_qk", &args, sizeof args);
    add_store_operands(t, c, &s);
    tape_reads(t, c, p.in);
    tape_reads_weight(t, c, p.w);
    tape_works_in(t, c, work);
    tape_writes(t, c, p.out);
}

void latent_qk_parts(const struct command *c, struct command parts[LATENT_QK_N_PARTS])
{
    const struct latent_qk_args *args = (const struct latent_qk_args *)c->args;
    struct command store = PART_OF(c, latent_store, args->store),
                   project = PART_OF(c, latent_project, args->project);

    store.n_operands = LATENT_STORE_TABLE + 1;
    memcpy(store.operands, c->operands, store.n_operands * sizeof *store.operands);
    project.n_operands = LATENT_PROJECT_OUT + 1;
    project.operands[LATENT_PROJECT_IN] = c->operands[LATENT_QK_Q];
    project.operands[LATENT_PROJECT_W] = c->operands[LATENT_QK_W];
    project.operands[LATENT_PROJECT_ANGLES] = c->operands[LATENT_STORE_ANGLES];
    project.operands[LATENT_PROJECT_WORK] = c->operands[LATENT_QK_WORK];
    project.operands[LATENT_PROJECT_OUT] = c->operands[LATENT_QK_OUT];
    parts[0] = store;
    parts[1] = project;
}

void op_latent_attend(struct tape *t, struct latent_attend a)
{
    const struct page_shape *s = &a.pages.shape;
    uint32_t n_heads = a.q.n_cols / s->head_dim;

    if (s->n_kv_heads != 1 || a.latent_dims >= s->head_dim || a.q.n_cols % s->head_dim != 0 ||
        a.out.n_cols != n_heads * a.latent_dims) {
        tape_fail(t,
                  "latent_attend: q has %u columns, out %u, keys of %u, latents of %u, %u KV heads; these do "
                  "not fit",
                  a.q.n_cols, a.out.n_cols, s->head_dim, a.latent_dims, s->n_kv_heads);
        return;
    }
    struct attend_args args = { *s, n_heads, 0, a.scale, a.latent_dims };
    struct command *c = tape_add(t, OP_latent_attend, "latent_attend", &args, sizeof args);
    tape_reads(t, c, a.q);
    tape_reads_buffer(t, c, a.pages.k);
    tape_reads_buffer(t, c, a.pages.table);
    tape_writes(t, c, a.out);
    if (tape_limits(t)->max_rows <= ATTEND_FEW_ROWS)
        tape_works_in(t, c, tape_tensor(t, attend_work_cols(s, n_heads, a.latent_dims), ROWS_STEP));
}
