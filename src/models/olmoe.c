// olmoe.c - OLMoE (Muennighoff et al., 2024): every layer a mixture; q and k have an RMSNorm over all heads
// together before RoPE.
#include <math.h>
#include "models/mixture.h"
#include "ops/attend/attend.h"
#include "ops/matmul/matmul.h"
#include "ops/rmsnorm/rmsnorm.h"

static const struct config_key config[] = { DECODER_CONFIG, MIXTURE_CONFIG("num_experts"),
                                            MIXTURE_NORMALISE(0) };

static const struct weight_key weights[] = {
    DECODER_ATTENTION(0),
    L(q_norm, "blk.%u.attn_q_norm.weight", "model.layers.%u.self_attn.q_norm.weight", ONE, Q),
    L(k_norm, "blk.%u.attn_k_norm.weight", "model.layers.%u.self_attn.k_norm.weight", ONE, KV),
    MIXTURE_WEIGHTS("model.layers.%u.mlp.gate.weight", "model.layers.%u.mlp.experts.%u.gate_proj.weight",
                    "model.layers.%u.mlp.experts.%u.up_proj.weight",
                    "model.layers.%u.mlp.experts.%u.down_proj.weight"),
};

// out = norm(in W^T): a projection whose whole row is normalised.
static void project(struct tape *t, struct tensor in, const struct weight *w, const struct weight *norm,
                    float eps, struct tensor out)
{
    op_matmul(t, (struct matmul){ .out = out, .in = in, .w = w });
    if (norm)
        op_rmsnorm(t, (struct rmsnorm){ .out = out, .in = out, .scale = norm, .eps = eps });
}

static void attention(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                      struct tensor angles)
{
    const struct model_config *c = &s->model->config;
    const struct layer_weights *w = stage_layer(s, l);
    const struct pages *pages = &s->pages[l - s->first];
    uint32_t n_q = c->n_heads * c->head_dim, n_kv = c->n_kv_heads * c->head_dim;
    struct tensor n = tape_tensor(t, c->n_cols, ROWS_STEP), q = tape_tensor(t, n_q, ROWS_STEP),
                  k = tape_tensor(t, n_kv, ROWS_STEP), v = tape_tensor(t, n_kv, ROWS_STEP),
                  attended = tape_tensor(t, n_q, ROWS_STEP);

    tape_label(t, "layer%u.qkv", l);
    op_rmsnorm(t, (struct rmsnorm){ .out = n, .in = x, .scale = w->attn_norm, .eps = c->norm_eps });
    project(t, n, w->q, w->q_norm, c->norm_eps, q);
    project(t, n, w->k, w->k_norm, c->norm_eps, k);
    project(t, n, w->v, NULL, c->norm_eps, v);
    op_rope_store(t, (struct rope_store){ .q = q,
                                          .k = k,
                                          .v = v,
                                          .angles = angles,
                                          .pages = *pages,
                                          .pairs = s->model->pairs,
                                          .eps = c->norm_eps });
    tape_label(t, "layer%u.attend", l);
    op_attend(t, (struct attend){
                     .out = attended, .q = q, .pages = *pages, .scale = 1 / sqrtf((float)c->head_dim) });
    tape_label(t, "layer%u.attn_out", l);
    op_matmul(t, (struct matmul){ .out = x, .in = attended, .w = w->o, .add = x });
}

static void layer(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                  struct tensor angles)
{
    attention(t, s, l, x, angles);
    mixture_block(t, s, l, x,
                  (struct route_rule){ ROUTE_SOFTMAX, .n_groups = 1, .n_used_groups = 1, .scale = 1 });
}

const struct arch arch_olmoe = { .name = "olmoe",
                                 .model_types = "olmoe",
                                 .activations = "silu swish",
                                 ARCH_TABLES(config, weights),
                                 ARCH_OWN(struct mixture_config, struct mixture_weights),
                                 .check = mixture_check,
                                 .scratch_cols = mixture_scratch_cols,
                                 .layer = layer };
