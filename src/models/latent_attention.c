// latent_attention.c - see latent_attention.h.
#include "models/latent_attention.h"
#include <math.h>
#include "models/blocks.h"
#include "ops/latent_block/latent_block.h"
#include "ops/latent_prompt/latent_prompt.h"
#include "ops/temper/temper.h"

// Of the norms on latents: fixed in the reference implementations, whatever the model's own is, and in no
// file.
static const float latent_eps = 1e-6f;

// Files with key_length_mla have in key_length what a page holds; older ones, what a head would have.
static bool read_gguf_sizes(struct model *m, struct latent_config *c, struct err *err)
{
    char key[128];
    uint64_t rotated = 0;

    snprintf(key, sizeof key, "%s.rope.dimension_count", m->arch->name);
    if (!model_file_u64(m->file, key, 2, 1024, &rotated, err))
        return false;
    c->rotated = (uint32_t)rotated;
    c->key = c->key ? c->key : c->old_key;
    c->value = c->value ? c->value : c->old_value;
    c->nope = c->key > c->rotated ? c->key - c->rotated : 0;
    return true;
}

bool latent_attention_complete(struct model *m, struct err *err)
{
    struct latent_config *c = m->own;
    struct model_config *all = &m->config;
    bool neighbours = true;

    if (!model_file_bool(m->file, "rope_interleave", &neighbours, err))
        return false;
    if (!neighbours)
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: rope_interleave is false; ingot runs %s models whose neighbours rotate together",
                       model_file_path(m->file), m->arch->name);
    if (model_file_format(m->file) == MODEL_GGUF && !read_gguf_sizes(m, c, err))
        return false;
    if (c->nope == 0 || c->rotated == 0 || c->rotated % 2 != 0 || c->value == 0 || c->latent % 2 != 0)
        return err_set(err, ERR_INPUT,
                       "%s: a latent of %u numbers, heads of %u and %u rotated ones, values of %u; want an "
                       "even latent, an even "
                       "number rotated, and none of them 0",
                       model_file_path(m->file), c->latent, c->nope, c->rotated, c->value);
    if ((uint64_t)all->n_heads * (c->nope + c->rotated + c->value) > 1 << 20)
        return err_set(err, ERR_INPUT, "%s: %u heads of %u numbers, values of %u; want at most %u in all",
                       model_file_path(m->file), all->n_heads, c->nope + c->rotated, c->value, 1u << 20);
    c->key = c->nope + c->rotated;
    c->n_heads = all->n_heads;
    c->plain_q = c->q_latent == 0;
    c->n_q = c->n_heads * c->key;
    c->n_kv = c->latent + c->rotated;
    c->n_out = c->n_heads * c->value;
    c->kv_b_rows = c->nope + c->value;
    c->old_key = c->n_kv; // as files say it now
    c->old_value = c->latent;
    all->n_kv_heads = 1;
    all->head_dim = c->n_kv;
    all->latent_dims = c->latent;
    all->rope[0].n_dims = c->rotated;
    m->pairs = ROPE_ADJACENT;
    return true;
}

void latent_attention_factors(struct model *m)
{
    const struct latent_config *c = m->own;
    float stretched = rope_yarn_factor(&m->config.rope[0], m->config.rope[0].mscale_all);

    m->factors.attend = stretched * stretched / sqrtf((float)c->key);
}

// The products to the latents of queries and keys, and from the former to the queries of all heads, as they
// would be expanded. Without such a latent the first makes the queries.
static void plan_queries(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                         struct latent_block *b)
{
    const struct latent_config *c = s->model->own;
    const struct latent_weights *w = stage_layer_own(s, l);
    struct tensor q = tape_tensor(t, c->n_q, ROWS_STEP),
                  first = w->q ? q : tape_tensor(t, c->q_latent, ROWS_STEP);

    b->down = (struct matmul_normed){ .out = first,
                                      .more = tape_tensor(t, c->n_kv, ROWS_STEP),
                                      .in = x,
                                      .norm = stage_layer(s, l)->attn_norm,
                                      .w = w->q ? w->q : w->q_a,
                                      .v = w->kv_a,
                                      .eps = s->model->factors.eps };
    b->up = (struct matmul_normed){
        .out = q, .in = first, .norm = w->q_a_norm, .w = w->q ? NULL : w->q_b, .eps = latent_eps
    };
}

// The token's key to its page; the queries in the latent space; attention there, and out of it.
static void plan_attention(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor angles,
                           struct latent_block *b)
{
    const struct latent_config *c = s->model->own;
    const struct latent_weights *w = stage_layer_own(s, l);

    b->store = (struct latent_store){ .in = b->down.more,
                                      .norm = w->kv_a_norm,
                                      .angles = angles,
                                      .pages = s->pages[l - s->first],
                                      .pairs = s->model->pairs,
                                      .eps = latent_eps };
    b->absorb = (struct latent_project){ .out = tape_tensor(t, c->n_heads * c->n_kv, ROWS_STEP),
                                         .in = b->up.out,
                                         .w = w->k_b,
                                         .angles = angles,
                                         .n_heads = c->n_heads,
                                         .pairs = s->model->pairs };
    b->attend = (struct latent_attend){ .out = tape_tensor(t, c->n_heads * c->latent, ROWS_STEP),
                                        .q = b->absorb.out,
                                        .pages = b->store.pages,
                                        .latent_dims = c->latent,
                                        .scale = s->model->factors.attend };
    b->expand = (struct latent_project){
        .out = tape_tensor(t, c->n_out, ROWS_STEP), .in = b->attend.out, .w = w->v_b, .n_heads = c->n_heads
    };
}

// From queries to values. A prompt's may be expanded, unless they grow with their position.
static void record_heads(struct tape *t, const struct model_stage *s, uint32_t l,
                         const struct latent_block *b, bool tempers)
{
    const struct latent_config *c = s->model->own;
    struct tensor absorbed = b->absorb.out;

    if (!tempers && op_latent_prompt(t, &(struct latent_prompt){ b->store, b->absorb, b->attend, b->expand }))
        return;
    op_latent_qk(t, b->store, b->absorb);
    if (tempers)
        op_temper(t, (struct temper){ .out = absorbed,
                                      .in = absorbed,
                                      .beta = c->beta,
                                      .period = s->model->config.rope[0].original_context });
    tape_label(t, "layer%u.attend", l);
    op_latent_attend(t, b->attend);
    tape_label(t, "layer%u.attn_out", l);
    op_latent_project(t, b->expand);
}

static void record_parts(struct tape *t, const struct model_stage *s, uint32_t l,
                         const struct latent_block *b, bool tempers)
{
    tape_label(t, "layer%u.qkv", l);
    op_matmul_normed(t, b->down);
    if (b->up.w)
        op_matmul_normed(t, b->up);
    record_heads(t, s, l, b, tempers);
    tape_label(t, "layer%u.attn_out", l);
    op_matmul(t, b->out);
}

void latent_attention(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                      struct tensor angles)
{
    const struct latent_config *c = s->model->own;
    // else its factor is 1
    bool tempers = c->beta > 0 && s->history_stride > s->model->config.rope[0].original_context;
    struct latent_block b;

    plan_queries(t, s, l, x, &b);
    plan_attention(t, s, l, angles, &b);
    b.out = (struct matmul){
        .out = x, .in = b.expand.out, .w = stage_layer(s, l)->o, .add = block_rank_add(s, x)
    };
    tape_label(t, "layer%u.attention", l);
    if (tempers || s->model->n_ranks || !op_latent_block(t, &b))
        record_parts(t, s, l, &b, tempers);
    block_rank_sum(t, s, x);
}
