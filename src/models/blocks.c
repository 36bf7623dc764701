// blocks.c - see blocks.h.
#include "models/blocks.h"
#include "ops/attend_block/attend_block.h"
#include "ops/gate_up/gate_up.h"
#include "ops/matmul/matmul.h"
#include "ops/qkv/qkv.h"
#include "ops/rmsnorm/rmsnorm.h"

static struct qkv qkv_of(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                         struct tensor angles)
{
    const struct layer_config *c = stage_layer_config(s, l);
    const struct layer_weights *w = stage_layer(s, l);

    return (struct qkv){ .q = tape_tensor(t, c->n_heads * c->head_dim, ROWS_STEP),
                         .in = x,
                         .norm = w->attn_norm,
                         .wq = w->q,
                         .wk = w->k,
                         .wv = w->v,
                         .bq = w->q_bias,
                         .bk = w->k_bias,
                         .bv = w->v_bias,
                         .q_norm = w->q_norm,
                         .k_norm = w->k_norm,
                         .angles = angles,
                         .pages = s->pages[l - s->first],
                         .pairs = s->model->pairs,
                         .eps = s->model->factors.eps };
}

struct tensor block_qkv(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                        struct tensor angles)
{
    struct qkv m = qkv_of(t, s, l, x, angles);

    tape_label(t, "layer%u.qkv", l);
    op_qkv(t, m);
    return m.q;
}

// norm(in W^T): a projection whose whole row is normalised.
static struct tensor project(struct tape *t, const struct model_stage *s, struct tensor in,
                             const struct weight *w, const struct weight *norm)
{
    struct tensor out = tape_tensor(t, w->n_rows, ROWS_STEP);

    op_matmul(t, (struct matmul){ .out = out, .in = in, .w = w });
    if (norm)
        op_rmsnorm(t, (struct rmsnorm){ .out = out, .in = out, .scale = norm, .eps = s->model->factors.eps });
    return out;
}

struct tensor block_qkv_whole(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                              struct tensor angles)
{
    const struct layer_weights *w = stage_layer(s, l);
    struct tensor n = w->attn_norm ? tape_tensor(t, x.n_cols, ROWS_STEP) : x;

    tape_label(t, "layer%u.qkv", l);
    if (w->attn_norm)
        op_rmsnorm(
            t, (struct rmsnorm){ .out = n, .in = x, .scale = w->attn_norm, .eps = s->model->factors.eps });
    struct tensor q = project(t, s, n, w->q, w->q_norm), k = project(t, s, n, w->k, w->k_norm),
                  v = project(t, s, n, w->v, NULL);
    op_rope_store(t, (struct rope_store){ .q = q,
                                          .k = k,
                                          .v = v,
                                          .angles = angles,
                                          .pages = s->pages[l - s->first],
                                          .pairs = s->model->pairs,
                                          .eps = s->model->factors.eps });
    return q;
}

struct tensor block_qkv_normed_values(struct tape *t, const struct model_stage *s, uint32_t l,
                                      struct tensor x, struct tensor angles)
{
    const struct layer_weights *w = stage_layer(s, l);
    const struct layer_config *c = stage_layer_config(s, l);
    float eps = s->model->factors.eps;
    uint32_t n_kv = w->k ? w->k->n_rows : 0;
    struct tensor q = tape_tensor(t, w->q->n_rows, ROWS_STEP), k = { 0 }, v = { 0 }, values = { 0 };

    if (w->k) {
        k = tape_tensor(t, n_kv, ROWS_STEP);
        v = tape_tensor(t, n_kv, ROWS_STEP);
        values = w->v ? tape_tensor(t, n_kv, ROWS_STEP) : k;
    }
    tape_label(t, "layer%u.qkv", l);
    op_matmul_normed(t, (struct matmul_normed){ .in = x,
                                                .norm = w->attn_norm,
                                                .w = w->q,
                                                .v = w->k,
                                                .u = w->k ? w->v : NULL,
                                                .out = q,
                                                .more = k,
                                                .last = w->v ? values : (struct tensor){ 0 },
                                                .eps = eps });
    if (w->k)
        op_rmsnorm(t, (struct rmsnorm){ .out = v, .in = values, .n_groups = c->n_kv_heads, .eps = eps });
    op_rope_store(t, (struct rope_store){ .q = q,
                                          .k = k,
                                          .v = v,
                                          .q_norm = w->q_norm,
                                          .k_norm = w->k_norm,
                                          .angles = angles,
                                          .pages = s->pages[l - s->first],
                                          .pairs = s->model->pairs,
                                          .eps = eps });
    return q;
}

struct tensor block_rank_add(const struct model_stage *s, struct tensor add)
{
    return s->model->rank == 0 ? add : (struct tensor){ 0 };
}

struct tensor block_rank_tensor(struct tape *t, const struct model_stage *s, uint32_t n_cols)
{
    return s->model->n_ranks ? tape_tensor_bound(t, n_cols, ROWS_STEP, s->sums)
                             : tape_tensor(t, n_cols, ROWS_STEP);
}

void block_rank_sum(struct tape *t, const struct model_stage *s, struct tensor v)
{
    if (s->model->n_ranks)
        tape_all_reduce(t, v);
}

// m.out += the product, normalised first where there is a norm.
static void add_product(struct tape *t, const struct model_stage *s, struct matmul m,
                        const struct weight *norm, float gain)
{
    struct tensor x = m.out;

    if (norm)
        m.out = block_rank_tensor(t, s, x.n_cols);
    else
        m.add = block_rank_add(s, x);
    op_matmul(t, m);
    block_rank_sum(t, s, m.out);
    if (norm)
        op_rmsnorm(
            t,
            (struct rmsnorm){
                .out = x, .in = m.out, .scale = norm, .add = x, .eps = s->model->factors.eps, .gain = gain });
}

void block_attended(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                    struct tensor attended)
{
    const struct layer_weights *w = stage_layer(s, l);

    tape_label(t, "layer%u.attn_out", l);
    add_product(t, s, (struct matmul){ .out = x, .in = attended, .w = w->o, .bias = w->o_bias },
                w->attn_out_norm, 1);
}

void block_attend(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x, struct attend a)
{
    a.out = tape_tensor(t, a.q.n_cols, ROWS_STEP);
    a.pages = s->pages[l - s->first];
    a.scale = s->model->factors.attend;
    tape_label(t, "layer%u.attend", l);
    op_attend(t, a);
    block_attended(t, s, l, x, a.out);
}

// In one operation: measured for layers with experts alone.
static bool attention_in_one(struct tape *t, const struct model_stage *s, uint32_t l, const struct qkv *m,
                             struct attend a)
{
    const struct layer_weights *w = stage_layer(s, l);
    struct tensor x = m->in;

    if (s->model->n_experts == 0 || s->model->n_ranks || w->attn_out_norm)
        return false;
    a.out = tape_tensor(t, a.q.n_cols, ROWS_STEP);
    a.scale = s->model->factors.attend;
    tape_label(t, "layer%u.attention", l);
    return op_attend_block(t, &(struct attend_block){
                                  .qkv = *m,
                                  .attend = a,
                                  .out = { .out = x, .in = a.out, .w = w->o, .bias = w->o_bias, .add = x } });
}

void block_attention(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                     struct tensor angles)
{
    struct qkv m = qkv_of(t, s, l, x, angles);
    struct attend a = { .q = m.q, .window = stage_layer_config(s, l)->window };

    if (attention_in_one(t, s, l, &m, a))
        return;
    tape_label(t, "layer%u.qkv", l);
    op_qkv(t, m);
    block_attend(t, s, l, x, a);
}

void block_gated_ffn(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                     enum activation activation)
{
    const struct layer_weights *w = stage_layer(s, l);
    struct tensor ffn = tape_tensor(t, stage_layer_config(s, l)->n_ffn, ROWS_STEP);

    tape_label(t, "layer%u.gate_up", l);
    op_gate_up(t, (struct gate_up){ .out = ffn,
                                    .in = x,
                                    .norm = w->ffn_norm,
                                    .gate = w->gate,
                                    .up = w->up,
                                    .activation = activation,
                                    .eps = s->model->factors.eps });
    tape_label(t, "layer%u.ffn_out", l);
    add_product(t, s, (struct matmul){ .out = x, .in = ffn, .w = w->down }, w->ffn_out_norm,
                s->model->config.n_inputs ? 1 : stage_layer_config(s, l)->gain);
}
