// latent_block.c - records the operation; see latent_block.h.
#include "ops/latent_block/latent_block.h"
#include "ops/ops.h"
#include "ops/parts.h"

static bool is_norm(const struct weight *w, uint32_t n_cols)
{
    return w && w->format == QUANT_F32 && w->n_rows == 1 && w->n_cols == n_cols;
}

// What the operation can be.
static bool parts_fit(const struct latent_block *b)
{
    const struct page_shape *s = &b->store.pages.shape;
    uint32_t n_heads = b->absorb.n_heads, n_rotated = b->store.angles.n_cols,
             latent = s->head_dim - n_rotated, n_q = b->up.out.n_cols / (n_heads ? n_heads : 1),
             n_value = b->expand.out.n_cols / (n_heads ? n_heads : 1), n_cols = b->down.in.n_cols;

    return n_heads > 0 && s->n_kv_heads == 1 && n_rotated < s->head_dim && n_rotated < n_q &&
           n_rotated % 2 == 0 && !b->down.u && !b->up.v && !b->out.bias && b->out.out.id == b->down.in.id &&
           b->out.add.id == b->down.in.id && is_norm(b->down.norm, n_cols) &&
           is_norm(b->up.norm, b->down.out.n_cols) && is_norm(b->store.norm, latent) &&
           matmul_is_plain(b->down.w, b->down.out.n_cols, n_cols) &&
           matmul_is_plain(b->down.v, s->head_dim, n_cols) &&
           matmul_is_plain(b->up.w, n_heads * n_q, b->down.out.n_cols) &&
           matmul_is_plain(b->absorb.w, n_heads * latent, n_q - n_rotated) &&
           matmul_is_plain(b->expand.w, n_heads * n_value, latent) &&
           matmul_is_plain(b->out.w, n_cols, n_heads * n_value);
}

static struct latent_block_args args_of(const struct tape *t, const struct latent_block *b)
{
    const struct latent_project *p = &b->absorb;

    return (struct latent_block_args){ .store = { b->store.pages.shape, b->store.norm->n_cols, b->store.pairs,
                                                  b->store.eps, 0 },
                                       .absorb = { p->n_heads,
                                                   p->w->n_rows / p->n_heads,
                                                   p->w->n_cols,
                                                   b->store.angles.n_cols,
                                                   p->pairs,
                                                   tape_limits(t)->exact,
                                                   { 0 } },
                                       .n_cols = b->down.in.n_cols,
                                       .q_latent = b->down.out.n_cols,
                                       .n_value = b->expand.w->n_rows / p->n_heads,
                                       .eps = b->down.eps,
                                       .q_eps = b->up.eps,
                                       .scale = b->attend.scale };
}

// Of the part that wants most.
static uint32_t work_cols(const struct latent_block_args *a)
{
    uint32_t n = a->absorb.n_heads,
             cols[] = { 2 * matmul_work_cols(a->n_cols), 2 * matmul_work_cols(a->q_latent),
                        latent_project_work_cols(n, a->absorb.n_cols),
                        latent_project_work_cols(n, a->store.latent_dims), matmul_work_cols(n * a->n_value) },
             most = 0;

    for (size_t i = 0; i < sizeof cols / sizeof *cols; i++)
        most = cols[i] > most ? cols[i] : most;
    return most;
}

bool op_latent_block(struct tape *t, const struct latent_block *b)
{
    const struct tape_limits *limits = tape_limits(t);

    if (!tape_fuses(t, OP_latent_block) || limits->max_rows != 1 || limits->invariant || !parts_fit(b))
        return false;
    struct latent_block_args args = args_of(t, b);
    struct tensor work = tape_tensor(t, work_cols(&args), ROWS_STEP);
    struct command *c = tape_add(t, OP_latent_block, "latent_block", &args, sizeof args);

    tape_reads(t, c, b->down.in);
    tape_reads_weight(t, c, b->down.norm);
    tape_reads_weight(t, c, b->down.w);
    tape_reads_weight(t, c, b->down.v);
    tape_reads_weight(t, c, b->up.norm);
    tape_reads_weight(t, c, b->up.w);
    tape_reads_weight(t, c, b->store.norm);
    tape_reads(t, c, b->store.angles);
    tape_writes_buffer(t, c, b->store.pages.k, page_operand_type(b->store.pages.shape.k_format));
    tape_reads_buffer(t, c, b->store.pages.table);
    tape_reads_weight(t, c, b->absorb.w);
    tape_reads_weight(t, c, b->expand.w);
    tape_reads_weight(t, c, b->out.w);
    tape_works_in(t, c, b->down.out);
    tape_works_in(t, c, b->down.more);
    tape_works_in(t, c, b->up.out);
    tape_works_in(t, c, b->absorb.out);
    tape_works_in(t, c, b->attend.out);
    tape_works_in(t, c, b->expand.out);
    tape_works_in(t, c, work);
    tape_writes(t, c, b->out.out);
    return true;
}

enum { MOST_OPERANDS = 9 };

static void product_parts(const struct command *c, struct command parts[LATENT_BLOCK_N_PARTS])
{
    static const int down[MOST_OPERANDS] = { LATENT_BLOCK_IN,    LATENT_BLOCK_NORM, LATENT_BLOCK_Q_A,
                                             LATENT_BLOCK_KV_A,  NO_OPERAND,        LATENT_BLOCK_WORK,
                                             LATENT_BLOCK_FIRST, LATENT_BLOCK_KV,   NO_OPERAND },
                     up[MOST_OPERANDS] = { LATENT_BLOCK_FIRST, LATENT_BLOCK_Q_NORM, LATENT_BLOCK_Q_B,
                                           NO_OPERAND,         NO_OPERAND,          LATENT_BLOCK_WORK,
                                           LATENT_BLOCK_Q,     NO_OPERAND,          NO_OPERAND },
                     out[MOST_OPERANDS] = { LATENT_BLOCK_VALUES, LATENT_BLOCK_O,    NO_OPERAND,
                                            LATENT_BLOCK_IN,     LATENT_BLOCK_WORK, LATENT_BLOCK_OUT };
    const struct latent_block_args *a = (const struct latent_block_args *)c->args;
    const struct latent_project_args *p = &a->absorb;
    u32 n_kv = a->store.pages.head_dim, n_q = p->n_heads * (p->n_cols + p->n_rotated);
    const struct matmul_normed_args of_down = { .n_cols = a->n_cols,
                                                .n_rows = a->q_latent,
                                                .n_more = n_kv,
                                                .eps = a->eps,
                                                .exact = p->exact },
                                    of_up = { .n_cols = a->q_latent,
                                              .n_rows = n_q,
                                              .eps = a->q_eps,
                                              .exact = p->exact };
    const struct matmul_args of_out = { a->n_cols, p->n_heads * a->n_value, ROWS_STEP, p->exact };

    parts[LATENT_BLOCK_DOWN] = PART_OF(c, matmul_normed, of_down);
    parts[LATENT_BLOCK_UP] = PART_OF(c, matmul_normed, of_up);
    parts[LATENT_BLOCK_MATMUL] = PART_OF(c, matmul, of_out);
    part_operands(&parts[LATENT_BLOCK_DOWN], c, down, NORMED_LAST + 1);
    part_operands(&parts[LATENT_BLOCK_UP], c, up, NORMED_LAST + 1);
    part_operands(&parts[LATENT_BLOCK_MATMUL], c, out, MATMUL_OUT + 1);
}

void latent_block_parts(const struct command *c, struct command parts[LATENT_BLOCK_N_PARTS])
{
    static const int qk[MOST_OPERANDS] = { LATENT_BLOCK_KV,    LATENT_BLOCK_KV_NORM, LATENT_BLOCK_ANGLES,
                                           LATENT_BLOCK_PAGES, LATENT_BLOCK_TABLE,   LATENT_BLOCK_Q,
                                           LATENT_BLOCK_K_B,   LATENT_BLOCK_WORK,    LATENT_BLOCK_ABSORBED },
                     attend[MOST_OPERANDS] = { LATENT_BLOCK_ABSORBED, LATENT_BLOCK_PAGES, LATENT_BLOCK_TABLE,
                                               LATENT_BLOCK_ATTENDED, NO_OPERAND },
                     expand[MOST_OPERANDS] = { LATENT_BLOCK_ATTENDED, LATENT_BLOCK_V_B, NO_OPERAND,
                                               LATENT_BLOCK_WORK, LATENT_BLOCK_VALUES };
    const struct latent_block_args *a = (const struct latent_block_args *)c->args;
    const struct latent_qk_args of_qk = { a->store, a->absorb };
    const struct attend_args of_attend = { a->store.pages, a->absorb.n_heads, 0, a->scale,
                                           a->store.latent_dims };
    struct latent_project_args of_expand = a->absorb;

    of_expand.n_rows = a->n_value;
    of_expand.n_cols = a->store.latent_dims;
    of_expand.n_rotated = 0;
    product_parts(c, parts);
    parts[LATENT_BLOCK_QK] = PART_OF(c, latent_qk, of_qk);
    parts[LATENT_BLOCK_ATTEND] = PART_OF(c, latent_attend, of_attend);
    parts[LATENT_BLOCK_EXPAND] = PART_OF(c, latent_project, of_expand);
    part_operands(&parts[LATENT_BLOCK_QK], c, qk, LATENT_QK_OUT + 1);
    part_operands(&parts[LATENT_BLOCK_ATTEND], c, attend, LATENT_ATTEND_WORK + 1);
    part_operands(&parts[LATENT_BLOCK_EXPAND], c, expand, LATENT_PROJECT_OUT + 1);
}
