// latent_prompt.c - records the operation; see latent_prompt.h.
#include "ops/latent_prompt/latent_prompt.h"
#include "ops/matmul/matmul.h"
#include "ops/ops.h"
#include "ops/parts.h"

// What the operation can be.
static bool parts_fit(const struct latent_prompt *p)
{
    const struct page_shape *s = &p->store.pages.shape;
    uint32_t n_heads = p->absorb.n_heads, n_rotated = p->store.angles.n_cols,
             latent = s->head_dim - n_rotated, n_x = p->absorb.w->n_cols,
             n_value = n_heads ? p->expand.w->n_rows / n_heads : 0;

    return n_heads > 0 && s->n_kv_heads == 1 && n_rotated < s->head_dim && n_rotated % 2 == 0 &&
           p->store.norm->n_cols == latent && p->store.in.n_cols == s->head_dim &&
           p->absorb.in.n_cols == n_heads * (n_x + n_rotated) &&
           p->absorb.out.n_cols == n_heads * s->head_dim && p->attend.out.n_cols == n_heads * latent &&
           p->expand.out.n_cols == n_heads * n_value && p->expand.w->n_rows == n_heads * n_value &&
           matmul_is_plain(p->absorb.w, n_heads * latent, n_x) &&
           matmul_is_plain(p->expand.w, n_heads * n_value, latent);
}

static struct latent_prompt_args args_of(const struct tape *t, const struct latent_prompt *p)
{
    const struct latent_project *absorb = &p->absorb;
    const struct latent_store *store = &p->store;

    return (struct latent_prompt_args){
        .qk = { { store->pages.shape, store->norm->n_cols, store->pairs, store->eps, 0 },
                { absorb->n_heads,
                  absorb->w->n_rows / absorb->n_heads,
                  absorb->w->n_cols,
                  store->angles.n_cols,
                  absorb->pairs,
                  tape_limits(t)->exact,
                  { 0 } } },
        .n_value = p->expand.w->n_rows / absorb->n_heads,
        .scale = p->attend.scale,
    };
}

bool op_latent_prompt(struct tape *t, const struct latent_prompt *p)
{
    const struct tape_limits *limits = tape_limits(t);

    if (!tape_fuses(t, OP_latent_prompt) || limits->max_rows < 2 * LATENT_PROMPT_ROWS || limits->invariant ||
        limits->exact || p->store.pages.shape.k_format != KV_F16 || !parts_fit(p))
        return false;
    struct latent_prompt_args args = args_of(t, p);
    const struct latent_project_args *absorb = &args.qk.project;
    uint32_t n = absorb->n_heads, latent = args.qk.store.latent_dims,
             cols = absorb->n_cols > latent ? absorb->n_cols : latent;
    struct tensor work = tape_tensor(t, latent_project_work_cols(n, cols), ROWS_STEP),
                  expanded = tape_tensor(
                      t, latent_prompt_expanded_cols(n, absorb->n_cols + absorb->n_rotated, args.n_value),
                      ROWS_STEP);
    struct command *c = tape_add(t, OP_latent_prompt, "latent_prompt", &args, sizeof args);

    tape_reads(t, c, p->store.in);
    tape_reads_weight(t, c, p->store.norm);
    tape_reads(t, c, p->store.angles);
    tape_writes_buffer(t, c, p->store.pages.k, page_operand_type(p->store.pages.shape.k_format));
    tape_reads_buffer(t, c, p->store.pages.table);
    tape_reads(t, c, p->absorb.in);
    tape_reads_weight(t, c, p->absorb.w);
    tape_works_in(t, c, work);
    tape_works_in(t, c, p->absorb.out);
    tape_works_in(t, c, p->attend.out);
    tape_reads_weight(t, c, p->expand.w);
    tape_works_in(t, c, expanded);
    tape_writes(t, c, p->expand.out);
    return true;
}

enum { MOST_OPERANDS = LATENT_QK_OUT + 1 };

void latent_prompt_parts(const struct command *c, struct command parts[LATENT_PROMPT_N_PARTS])
{
    static const int attend[MOST_OPERANDS] = { LATENT_QK_OUT, LATENT_STORE_PAGES, LATENT_STORE_TABLE,
                                               LATENT_PROMPT_ATTENDED, NO_OPERAND },
                     project[MOST_OPERANDS] = { LATENT_PROMPT_ATTENDED, LATENT_PROMPT_V_B, NO_OPERAND,
                                                LATENT_QK_WORK, LATENT_PROMPT_OUT };
    const struct latent_prompt_args *a = (const struct latent_prompt_args *)c->args;
    const struct attend_args of_attend = { a->qk.store.pages, a->qk.project.n_heads, 0, a->scale,
                                           a->qk.store.latent_dims };
    struct latent_project_args of_project = a->qk.project;

    of_project.n_rows = a->n_value;
    of_project.n_cols = a->qk.store.latent_dims;
    of_project.n_rotated = 0;
    parts[LATENT_PROMPT_QK] = *c;
    parts[LATENT_PROMPT_QK].op = OP_latent_qk;
    parts[LATENT_PROMPT_QK].name = "latent_qk";
    parts[LATENT_PROMPT_QK].n_operands = LATENT_QK_OUT + 1;
    parts[LATENT_PROMPT_ATTEND] = PART_OF(c, latent_attend, of_attend);
    parts[LATENT_PROMPT_PROJECT] = PART_OF(c, latent_project, of_project);
    part_operands(&parts[LATENT_PROMPT_ATTEND], c, attend, LATENT_ATTEND_WORK + 1);
    part_operands(&parts[LATENT_PROMPT_PROJECT], c, project, LATENT_PROJECT_OUT + 1);
}
