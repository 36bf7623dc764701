// attend_block.c - records the operation; see attend_block.h.
#include "ops/attend_block/attend_block.h"
#include "ops/ops.h"
#include "ops/parts.h"

static bool is_norm(const struct weight *w, uint32_t n_cols)
{
    return w && w->format == QUANT_F32 && w->n_rows == 1 && w->n_cols == n_cols;
}

// What the operation can be.
static bool parts_fit(const struct attend_block *b)
{
    const struct qkv *m = &b->qkv;
    const struct page_shape *s = &m->pages.shape;
    uint32_t n_kv = s->n_kv_heads * s->head_dim, n_q = m->q.n_cols, n_cols = m->in.n_cols;

    return n_q % n_kv == 0 && m->angles.n_cols <= s->head_dim && m->angles.n_cols % 2 == 0 &&
           !b->attend.sinks && !b->out.bias && b->out.out.id == m->in.id && b->out.add.id == m->in.id &&
           is_norm(m->norm, n_cols) && (!m->q_norm || is_norm(m->q_norm, s->head_dim)) &&
           (!m->k_norm || is_norm(m->k_norm, s->head_dim)) && matmul_is_plain(m->wq, n_q, n_cols) &&
           matmul_is_plain(m->wk, n_kv, n_cols) && matmul_is_plain(m->wv, n_kv, n_cols) &&
           matmul_is_plain(b->out.w, n_cols, n_q);
}

static struct attend_block_args args_of(const struct tape *t, const struct attend_block *b)
{
    const struct qkv *m = &b->qkv;
    const struct page_shape *s = &m->pages.shape;

    return (struct attend_block_args){ .qkv = { .rope = { *s, m->q.n_cols / s->head_dim, m->angles.n_cols,
                                                          m->pairs, m->eps },
                                                .n_cols = m->in.n_cols,
                                                .norm_eps = m->eps,
                                                .exact = tape_limits(t)->exact },
                                       .window = b->attend.window,
                                       .scale = b->attend.scale };
}

bool op_attend_block(struct tape *t, const struct attend_block *b)
{
    const struct tape_limits *limits = tape_limits(t);
    const struct qkv *m = &b->qkv;
    const struct page_shape *s = &m->pages.shape;
    const struct weight *weights[] = {
        m->norm, m->wq, m->wk, m->wv, m->bq, m->bk, m->bv, m->q_norm, m->k_norm
    };

    if (!tape_fuses(t, OP_attend_block) || limits->max_rows != 1 || limits->invariant || !parts_fit(b))
        return false;
    struct attend_block_args args = args_of(t, b);
    uint32_t n_q = m->q.n_cols, n_work = attend_work_cols(s, args.qkv.rope.n_heads, s->head_dim);
    struct tensor qkv_work =
                      tape_tensor(t, qkv_work_cols(m->in.n_cols, s->n_kv_heads * s->head_dim), ROWS_STEP),
                  attend_work = tape_tensor(t, n_work, ROWS_STEP),
                  o_work = tape_tensor(t, matmul_work_cols(n_q), ROWS_STEP);
    struct command *c = tape_add(t, OP_attend_block, "attend_block", &args, sizeof args);

    tape_reads(t, c, m->in);
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        tape_reads_weight(t, c, weights[i]);
    tape_reads(t, c, m->angles);
    tape_writes_buffer(t, c, m->pages.k, page_operand_type(s->k_format));
    tape_writes_buffer(t, c, m->pages.v, page_operand_type(s->v_format));
    tape_reads_buffer(t, c, m->pages.table);
    tape_works_in(t, c, qkv_work);
    tape_works_in(t, c, m->q);
    tape_works_in(t, c, b->attend.out);
    tape_works_in(t, c, attend_work);
    tape_reads_weight(t, c, b->out.w);
    tape_works_in(t, c, o_work);
    tape_writes(t, c, b->out.out);
    return true;
}

enum { MOST_OPERANDS = ATTEND_WORK + 1 };

void attend_block_parts(const struct command *c, struct command parts[ATTEND_BLOCK_N_PARTS])
{
    static const int attend[MOST_OPERANDS] = { QKV_Q,
                                               QKV_K_PAGES,
                                               QKV_V_PAGES,
                                               QKV_TABLE,
                                               ATTEND_BLOCK_ATTENDED,
                                               NO_OPERAND,
                                               ATTEND_BLOCK_ATTEND_WORK },
                     out[MOST_OPERANDS] = { ATTEND_BLOCK_ATTENDED, ATTEND_BLOCK_O,  NO_OPERAND, QKV_IN,
                                            ATTEND_BLOCK_O_WORK,   ATTEND_BLOCK_OUT };
    const struct attend_block_args *a = (const struct attend_block_args *)c->args;
    const struct rope_store_args *rope = &a->qkv.rope;
    const struct attend_args of_attend = { rope->pages, rope->n_heads, a->window, a->scale, 0 };
    const struct matmul_args of_out = { a->qkv.n_cols, rope->n_heads * rope->pages.head_dim, ROWS_STEP,
                                        a->qkv.exact };

    parts[ATTEND_BLOCK_QKV] = *c;
    parts[ATTEND_BLOCK_QKV].op = OP_qkv;
    parts[ATTEND_BLOCK_QKV].name = "qkv";
    parts[ATTEND_BLOCK_QKV].n_operands = QKV_Q + 1;
    parts[ATTEND_BLOCK_ATTEND] = PART_OF(c, attend, of_attend);
    parts[ATTEND_BLOCK_MATMUL] = PART_OF(c, matmul, of_out);
    part_operands(&parts[ATTEND_BLOCK_ATTEND], c, attend, ATTEND_WORK + 1);
    part_operands(&parts[ATTEND_BLOCK_MATMUL], c, out, MATMUL_OUT + 1);
}
