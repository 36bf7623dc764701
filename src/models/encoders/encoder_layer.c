// encoder_layer.c - see encoder_layer.h. A text is read in one step, so that keys and values are tensors and
// no pages.
#include "models/encoders/encoder_layer.h"
#include "ops/attend_all/attend_all.h"
#include "ops/gate_up/gate_up.h"
#include "ops/layernorm/layernorm.h"
#include "ops/matmul/matmul.h"

// rope_store without k and v rotates q alone, and keys are rotated as queries are.
static void rotate(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                   const struct weight *norm, struct tensor angles)
{
    if (angles.id || norm)
        op_rope_store(t, (struct rope_store){ .q = x,
                                              .q_norm = norm,
                                              .angles = angles,
                                              .pages = s->pages[l - s->first],
                                              .pairs = s->model->pairs,
                                              .eps = s->model->factors.eps });
}

static struct tensor project(struct tape *t, struct tensor in, const struct weight *w,
                             const struct weight *bias)
{
    struct tensor out = tape_tensor(t, w->n_rows, ROWS_STEP);

    op_matmul(t, (struct matmul){ .out = out, .in = in, .w = w, .bias = bias });
    return out;
}

struct tensor encoder_attend(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor in,
                             struct tensor angles, uint32_t reach)
{
    const struct layer_config *c = stage_layer_config(s, l);
    const struct layer_weights *w = stage_layer(s, l);

    tape_label(t, "layer%u.qkv", l);
    struct tensor q = project(t, in, w->q, w->q_bias), k = project(t, in, w->k, w->k_bias),
                  v = project(t, in, w->v, w->v_bias), out = tape_tensor(t, q.n_cols, ROWS_STEP);
    rotate(t, s, l, q, w->q_norm, angles);
    rotate(t, s, l, k, w->k_norm, angles);
    tape_label(t, "layer%u.attend", l);
    op_attend_all(t, (struct attend_all){ .out = out,
                                          .q = q,
                                          .k = k,
                                          .v = v,
                                          .n_heads = c->n_heads,
                                          .scale = s->model->factors.attend,
                                          .reach = reach });
    return out;
}

// ---- of those with a LayerNorm behind each half of a layer

static bool is_gguf(const struct model *m)
{
    return model_file_format(m->file) == MODEL_GGUF;
}

uint64_t encoder_rows(const struct model *m, const char *gguf, const char *json)
{
    char name[160];

    snprintf(name, sizeof name, "%s%s", is_gguf(m) ? "" : m->json_prefix, is_gguf(m) ? gguf : json);
    const struct file_tensor *t = model_file_tensor(m->file, name);
    return !t ? 0 : t->n_dims == 1 ? 1 : t->dims[0];
}

bool encoder_read_types(struct model *m, struct err *err)
{
    struct encoder_config *c = m->own;
    uint64_t n = encoder_rows(m, "token_types.weight", "embeddings.token_type_embeddings.weight");

    c->n_types = (uint32_t)n;
    return n <= 256 || err_set(err, ERR_INPUT, "%s: %llu token types; want at most 256",
                               model_file_path(m->file), (unsigned long long)n);
}

bool encoder_sees_all(const struct model *m, struct err *err)
{
    char key[128];
    bool causal = false;

    snprintf(key, sizeof key, "%s.attention.causal", m->arch->name);
    return model_file_bool(m->file, key, &causal, err) && model_lacks(m, "is_decoder", err) &&
           (!causal || err_set(err, ERR_UNSUPPORTED, "%s: %s is true; ingot runs %s models as encoders",
                               model_file_path(m->file), key, m->arch->name));
}

// x = layernorm(x + in W^T + bias)
static void add_and_norm(struct tape *t, const struct model_stage *s, struct matmul m,
                         const struct weight *norm, const struct weight *bias)
{
    struct tensor x = m.add;

    m.out = tape_tensor(t, x.n_cols, ROWS_STEP);
    op_matmul(t, m);
    op_layernorm(t, (struct layernorm){
                        .out = x, .in = m.out, .scale = norm, .bias = bias, .eps = s->model->factors.eps });
}

static struct tensor bert_ffn(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x)
{
    const struct layer_weights *w = stage_layer(s, l);
    const struct encoder_weights *own = stage_layer_own(s, l);
    struct tensor ffn = tape_tensor(t, w->up->n_rows, ROWS_STEP);

    tape_label(t, "layer%u.ffn", l);
    if (w->gate)
        op_gate_up(t, (struct gate_up){
                          .out = ffn, .in = x, .gate = w->gate, .up = w->up, .activation = ACTIVATION_SILU });
    else
        op_matmul_activated(t, (struct matmul){ .out = ffn, .in = x, .w = w->up, .bias = own->up_bias },
                            ACTIVATION_GELU);
    return ffn;
}

void encoder_layer(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                   struct tensor angles)
{
    const struct layer_weights *w = stage_layer(s, l);
    const struct encoder_weights *own = stage_layer_own(s, l);
    struct tensor attended = encoder_attend(t, s, l, x, angles, 0);

    tape_label(t, "layer%u.attn_out", l);
    add_and_norm(t, s, (struct matmul){ .in = attended, .w = w->o, .bias = w->o_bias, .add = x },
                 w->attn_out_norm, own->attn_norm_bias);
    struct tensor ffn = bert_ffn(t, s, l, x);
    tape_label(t, "layer%u.ffn_out", l);
    add_and_norm(t, s, (struct matmul){ .in = ffn, .w = w->down, .bias = own->down_bias, .add = x },
                 w->ffn_out_norm, own->ffn_norm_bias);
}
