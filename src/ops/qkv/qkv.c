// qkv.c - checks and records the operation, or its parts; see qkv.h.
#include "ops/qkv/qkv.h"
#include "ops/matmul/matmul.h"
#include "ops/ops.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/trellis/trellis.h"

static void record_parts(struct tape *t, struct qkv m)
{
    uint32_t n_kv = m.pages.shape.n_kv_heads * m.pages.shape.head_dim;
    struct tensor n = tape_tensor(t, m.in.n_cols, ROWS_STEP);
    struct tensor k = tape_tensor(t, n_kv, ROWS_STEP), v = tape_tensor(t, n_kv, ROWS_STEP);

    op_rmsnorm(t, (struct rmsnorm){ .out = n, .in = m.in, .scale = m.norm, .eps = m.eps });
    matmul_record_joined(t,
                         (const struct matmul[]){ { .out = m.q, .in = n, .w = m.wq, .bias = m.bq },
                                                  { .out = k, .in = n, .w = m.wk, .bias = m.bk },
                                                  { .out = v, .in = n, .w = m.wv, .bias = m.bv } },
                         3);
    op_lora(t, (struct lora){ .in = n,
                              .targets = { { m.q, m.wq->lora }, { k, m.wk->lora }, { v, m.wv->lora } } });
    op_rope_store(t, (struct rope_store){ .q = m.q,
                                          .k = k,
                                          .v = v,
                                          .q_norm = m.q_norm,
                                          .k_norm = m.k_norm,
                                          .angles = m.angles,
                                          .pages = m.pages,
                                          .pairs = m.pairs,
                                          .eps = m.eps });
}

static void record_fused(struct tape *t, struct qkv m, const struct lora *l)
{
    const struct page_shape *s = &m.pages.shape;
    bool adds = lora_adds(l);
    struct qkv_adapted_args args = {
        .product = { .rope = { *s, m.q.n_cols / s->head_dim, m.angles.n_cols, m.pairs, m.eps },
                     .n_cols = m.in.n_cols,
                     .norm_eps = m.eps,
                     .exact = tape_limits(t)->exact },
        .adapters = lora_adapted_args(l),
    };
    struct tensor work = tape_tensor(t, qkv_work_cols(m.in.n_cols, s->n_kv_heads * s->head_dim), ROWS_STEP);
    struct command *c = adds ? tape_add(t, OP_qkv_adapted, "qkv_adapted", &args, sizeof args)
                             : tape_add(t, OP_qkv, "qkv", &args.product, sizeof args.product);

    tape_reads(t, c, m.in);
    for (uint32_t i = 0; i < 9; i++)
        tape_reads_weight(t, c,
                          ((const struct weight *const[]){ m.norm, m.wq, m.wk, m.wv, m.bq, m.bk, m.bv,
                                                           m.q_norm, m.k_norm })[i]);
    tape_reads(t, c, m.angles);
    tape_writes_buffer(t, c, m.pages.k, page_operand_type(s->k_format));
    tape_writes_buffer(t, c, m.pages.v, page_operand_type(s->v_format));
    tape_reads_buffer(t, c, m.pages.table);
    tape_works_in(t, c, work);
    tape_writes(t, c, m.q);
    if (adds)
        lora_add_operands(t, c, l);
}

void op_qkv(struct tape *t, struct qkv m)
{
    uint32_t head_dim = m.pages.shape.head_dim, n_kv = m.pages.shape.n_kv_heads * head_dim;

    if (m.norm->n_cols != m.in.n_cols || m.q.n_cols % head_dim != 0 || m.angles.n_cols > head_dim ||
        m.angles.n_cols % 2 != 0) {
        tape_fail(t,
                  "qkv: in has %u columns, norm %u, q %u, heads of %u, %u of them rotated; these do not fit",
                  m.in.n_cols, m.norm->n_cols, m.q.n_cols, head_dim, m.angles.n_cols);
        return;
    }
    if (!matmul_fits(t, "qkv", m.wq, m.in.n_cols, m.q.n_cols) ||
        !matmul_fits(t, "qkv", m.wk, m.in.n_cols, n_kv) || !matmul_fits(t, "qkv", m.wv, m.in.n_cols, n_kv))
        return;
    struct tensor kv = { .n_cols = n_kv };
    struct lora l = { .in = m.in,
                      .targets = { { m.q, m.wq->lora }, { kv, m.wk->lora }, { kv, m.wv->lora } } };
    bool codes = trellis_multiplies(m.wq) || trellis_multiplies(m.wk) || trellis_multiplies(m.wv);
    if (!codes && (lora_adds(&l) ? lora_fuses(t, OP_qkv_adapted, &l) : tape_fuses(t, OP_qkv)))
        record_fused(t, m, &l);
    else
        record_parts(t, m);
}
