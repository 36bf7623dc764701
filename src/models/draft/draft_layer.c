// draft_layer.c - see draft_layer.h.
#include "models/draft/draft_layer.h"
#include <string.h>
#include "base/log.h"
#include "models/arch.h"
#include "models/binding/model_names.h"
#include "models/trellis_tensor.h"
#include "ops/embed/embed.h"
#include "ops/matmul/matmul.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/sample/sample.h"
#include "ops/select/select.h"

enum { COMPARED_ROWS = 64 };

#define NEXTN(part) "blk.%u.nextn." part ".weight"
#define EACH_LAYER  "model.layers.%u."
#define LAYER(part) EACH_LAYER part ".weight"
static const struct weight_key keys[] = {
    W(draft_embed_norm, NEXTN("enorm"), LAYER("enorm"), ONE, COLS),
    W(draft_hidden_norm, NEXTN("hnorm"), LAYER("hnorm"), ONE, COLS),
    W(draft_from_embed, NEXTN("eh_proj"), LAYER("eh_proj"), COLS, COLS, | 0, .col_half = 1),
    W(draft_from_hidden, NEXTN("eh_proj"), LAYER("eh_proj"), COLS, COLS, | 0, .col_half = 2),
    W(draft_norm, NEXTN("shared_head_norm"), LAYER("shared_head.norm"), ONE, COLS),
    W(draft_embed, NEXTN("embed_tokens"), LAYER("embed_tokens"), VOCAB, COLS, | WEIGHT_OPTIONAL),
    W(draft_head, NEXTN("shared_head_head"), LAYER("shared_head.head"), VOCAB, COLS, | WEIGHT_OPTIONAL),
};
// Beside the model's layers, as in Qwen3.5's checkpoints, with norms of 1 + w; GGUF files have the same names
// for both.
static const struct weight_key keys_apart[] = {
    W(draft_embed_norm, NEXTN("enorm"), "mtp.pre_fc_norm_embedding.weight", ONE, COLS, | WEIGHT_PLUS_ONE),
    W(draft_hidden_norm, NEXTN("hnorm"), "mtp.pre_fc_norm_hidden.weight", ONE, COLS, | WEIGHT_PLUS_ONE),
    W(draft_from_embed, NEXTN("eh_proj"), "mtp.fc.weight", COLS, COLS, | 0, .col_half = 1),
    W(draft_from_hidden, NEXTN("eh_proj"), "mtp.fc.weight", COLS, COLS, | 0, .col_half = 2),
    W(draft_norm, NEXTN("shared_head_norm"), "mtp.norm.weight", ONE, COLS, | WEIGHT_PLUS_ONE),
    W(draft_embed, NEXTN("embed_tokens"), NULL, VOCAB, COLS, | WEIGHT_OPTIONAL),
    W(draft_head, NEXTN("shared_head_head"), NULL, VOCAB, COLS, | WEIGHT_OPTIONAL),
};
STATIC_ASSERT(sizeof keys == DRAFT_LAYER_KEYS * sizeof *keys && sizeof keys_apart == sizeof keys);

const struct weight_key *draft_layer_keys(const struct model *m)
{
    return m->arch->draft_layer ? keys_apart : keys;
}

static bool is_in_file(const struct model *m)
{
    char name[128];

    for (uint32_t i = 0; i < DRAFT_LAYER_KEYS; i++)
        if (model_names_find(m, &draft_layer_keys(m)[i], m->config.n_layers, name))
            return true;
    return false;
}

// A tensor that each layer has.
static bool bind_one(struct model *m, const struct weight_key *k, uint32_t l, struct err *err)
{
    struct weight_key here = *k;
    char name[128];

    if (m->arch->draft_layer && k->json) {
        CHECK(str_starts(str_from(k->json), STR(EACH_LAYER)));
        snprintf(name, sizeof name, "%s%s", m->arch->draft_layer, k->json + strlen(EACH_LAYER));
        here.json = name;
    }
    return model_bind_tensor(m, &here, l, err);
}

static bool bind(struct model *m, struct err *err)
{
    uint32_t l = m->config.n_layers;

    for (uint32_t i = 0; i < DRAFT_LAYER_KEYS; i++)
        if (!model_bind_tensor(m, &draft_layer_keys(m)[i], l, err))
            return false;
    for (uint32_t i = 0; i < m->arch->n_weights; i++) {
        const struct weight_key *k = &m->arch->weights[i];
        if (k->per_layer && model_has(m, k, l) && !bind_one(m, k, l, err))
            return false;
    }
    return true;
}

// Checkpoints repeat the model's own table and head here. By some of their rows.
static bool is_copy(const struct file_tensor *t, const struct file_tensor *of)
{
    if (!t || !of || !t->data || !of->data || t->format != of->format || t->bytes != of->bytes)
        return false;
    uint64_t n_rows = t->dims[0], row_bytes = t->bytes / n_rows,
             every = n_rows > COMPARED_ROWS ? n_rows / COMPARED_ROWS : 1;
    for (uint64_t r = 0; r < n_rows; r += every)
        if (memcmp(t->data + r * row_bytes, of->data + r * row_bytes, row_bytes) != 0)
            return false;
    return true;
}

static void count(struct model *m, const struct file_tensor *t)
{
    if (!t)
        return;
    m->n_draft_parameters += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
    m->draft_bytes += trellis_kept_bytes(t);
}

static void take(struct model *m)
{
    if (is_copy(MODEL_TENSOR(m, draft_embed), MODEL_TENSOR(m, embed)))
        MODEL_TENSOR(m, draft_embed) = NULL;
    if (is_copy(MODEL_TENSOR(m, draft_head), MODEL_TENSOR(m, head)))
        MODEL_TENSOR(m, draft_head) = NULL;
    for (uint32_t i = 0; i < DRAFT_LAYER_KEYS; i++)
        count(m, m->tensors[draft_layer_keys(m)[i].place]);
    for (uint32_t i = 0; i < m->n_places; i++)
        count(m, model_layer(m, m->config.n_layers)[i]);
    m->drafts = true;
}

bool draft_layer_bind(struct model *m, struct err *err)
{
    struct layer_config *c = &m->layer_configs[m->config.n_layers];
    struct err why = { 0 };

    if (!m->arch->drafts || m->config.n_draft == 0 || !is_in_file(m))
        return true;
    *c = m->layer_configs[m->config.n_layers - 1];
    c->pages_of = m->config.n_layers;
    c->state_words = 0;
    struct model bound = *m; // the model's sums stay as they are
    bool whole = bind(&bound, &why);
    m->joined = bound.joined;
    if (whole) {
        memcpy(m->tensors, bound.tensors, sizeof m->tensors);
        take(m);
        return true;
    }
    if (why.code == ERR_MEMORY)
        return err_set(err, ERR_MEMORY, "%s", why.message);
    memset(model_layer(m, m->config.n_layers), 0, m->n_places * sizeof *m->layers);
    log_line(LOG_WARN, "load", "%s; its layer that drafts tokens is left alone", why.message);
    return true;
}

// The layer's input, of the tokens behind the rows and of what the model made of the rows.
static struct tensor record_input(struct tape *t, const struct model_stage *s)
{
    const struct model_weights *w = &s->weights;
    uint32_t n_cols = s->model->config.n_cols;
    float eps = s->model->factors.eps;
    struct tensor hidden = tape_tensor_bound(t, n_cols, ROWS_STEP, s->block),
                  embedded = tape_tensor(t, n_cols, ROWS_STEP), normed = tape_tensor(t, n_cols, ROWS_STEP),
                  x = tape_tensor(t, n_cols, ROWS_STEP);

    tape_label(t, "draft.embed");
    op_embed(t, (struct embed){ .out = embedded,
                                .table = w->draft_embed,
                                .history = s->history,
                                .history_stride = s->history_stride,
                                .scale = s->model->factors.embed });
    op_rmsnorm(t,
               (struct rmsnorm){ .out = embedded, .in = embedded, .scale = w->draft_embed_norm, .eps = eps });
    op_matmul(t, (struct matmul){ .out = x, .in = embedded, .w = w->draft_from_embed });
    tape_label(t, "draft.hidden");
    op_rmsnorm(t, (struct rmsnorm){ .out = normed, .in = hidden, .scale = w->out_norm, .eps = eps });
    op_rmsnorm(t, (struct rmsnorm){ .out = normed, .in = normed, .scale = w->draft_hidden_norm, .eps = eps });
    op_matmul(t, (struct matmul){ .out = x, .in = normed, .w = w->draft_from_hidden, .add = x });
    return x;
}

static void record_output(struct tape *t, const struct model_stage *s, struct tensor x)
{
    const struct model_config *c = &s->model->config;
    struct tensor last = tape_tensor(t, c->n_cols, ROWS_OUTPUT),
                  normed = tape_tensor(t, c->n_cols, ROWS_OUTPUT),
                  logits = tape_tensor_bound(t, c->n_vocab, ROWS_OUTPUT, s->logits);

    tape_label(t, "draft.norm");
    op_select(t, (struct select){ .out = last, .in = x });
    op_rmsnorm(t,
               (struct rmsnorm){
                   .out = normed, .in = last, .scale = s->weights.draft_norm, .eps = s->model->factors.eps });
    tape_label(t, "draft.logits");
    op_matmul(t, (struct matmul){ .out = logits, .in = normed, .w = s->weights.draft_head });
    tape_label(t, "draft.sample");
    op_sample(t, (struct sample){ .logits = logits,
                                  .history = s->history,
                                  .history_stride = s->history_stride,
                                  .ahead = 1,
                                  .results = s->results });
}

void draft_layer_record(struct tape *t, const struct model_stage *s)
{
    uint32_t l = s->model->config.n_layers;
    struct tensor angles = model_record_angles(t, s, stage_layer_config(s, l)->rope), x = record_input(t, s);

    s->model->arch->layer(t, s, l, x, angles);
    record_output(t, s, x);
}
