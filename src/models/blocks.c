// blocks.c - see blocks.h.
#include "models/blocks.h"
#include "ops/gate_up/gate_up.h"
#include "ops/matmul/matmul.h"
#include "ops/qkv/qkv.h"
#include "ops/rmsnorm/rmsnorm.h"

struct tensor block_qkv(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                        struct tensor angles)
{
    const struct layer_config *c = stage_layer_config(s, l);
    const struct layer_weights *w = stage_layer(s, l);
    struct tensor q = tape_tensor(t, c->n_heads * c->head_dim, ROWS_STEP);

    tape_label(t, "layer%u.qkv", l);
    op_qkv(t, (struct qkv){ .q = q,
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
                            .eps = s->model->factors.eps });
    return q;
}

void block_attend(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x, struct attend a)
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

void block_attention(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                     struct tensor angles)
{
    struct tensor q = block_qkv(t, s, l, x, angles);

    block_attend(t, s, l, x, (struct attend){ .q = q, .window = stage_layer_config(s, l)->window });
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
