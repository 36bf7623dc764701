// pool.c - see pool.h.
//
// Sums are in double. A score is that of Qwen3's rerankers, the softmax over the two words yes and no, or
// that of cross-encoders, the sigmoid of the head's one row.
#include "engine/pool.h"
#include <math.h>
#include "base/mem.h"
#include "engine/request.h"
#include "engine/stage/remote.h"
#include "models/arch.h"

enum { YES, NO, N_WORDS };
enum { MOST_ROWS = 64 }; // that are read together

// Numbers of the file in fp32, and some rows. Made once, then constant but for `rows`, which belong to the
// thread that steps.
struct pool_room {
    float *norm;                         // [n_cols]; NULL: rows are used as they are
    float *rows;                         // [MOST_ROWS, n_cols]
    float *rank_dense, *rank_dense_bias; // [n_cols, n_cols], [n_cols]; or NULL
    float *rank_out, *rank_out_bias;     // [n_labels, n_cols], [n_labels]; or NULL
    float *embed_dense, *embed_out;      // [n_hidden, n_cols], [n_vector, n_hidden]; or NULL
    uint32_t n_labels;
};

#define FILE_TENSOR(e, field) MODEL_TENSOR(&(e)->loaded->model, field)

// ---- what requests share

// The tensor's numbers; *numbers NULL: there is no tensor.
static bool take(const struct file_tensor *t, float **numbers, struct err *err)
{
    *numbers = NULL;
    if (!t)
        return true;
    const struct quant_info *info = quant_info(t->format);
    if (!t->data && t->format != QUANT_F32)
        return err_set(err, ERR_UNSUPPORTED,
                       "tensor %.*s holds codes; an embedding's last weights must be numbers",
                       STR_ARG(t->name));
    uint64_t n = t->dims[0] * t->dims[1] * t->dims[2];
    float *to = mem_alloc_array(n, sizeof *to);
    if (to && t->data)
        info->decode(t->data, to, n);
    else if (to) // computed while it is read, as fp32
        model_tensor_read(t, 0, n, to);
    *numbers = to;
    return to || err_memory(err, "an embedding's weights");
}

// The head's rows of the two words, as a reranker's head has them.
static bool take_words(const struct engine *e, struct pool_room *room, struct err *err)
{
    static const char *const words[N_WORDS] = { [YES] = "yes", [NO] = "no" };
    const struct file_tensor *head = FILE_TENSOR(e, head);
    uint32_t n = e->loaded->model.config.n_cols;
    const struct quant_info *info = quant_info(head->format);

    room->rank_out = mem_alloc_array((size_t)N_WORDS * n, sizeof *room->rank_out);
    if (!room->rank_out)
        return err_memory(err, "a reranker's head");
    for (int i = 0; i < N_WORDS; i++) {
        int64_t id = tokenizer_find(e->loaded->tokenizer, str_from(words[i]));
        info->decode(head->data + (uint64_t)id * n / info->block_elements * info->block_bytes,
                     room->rank_out + (size_t)i * n, n);
    }
    room->n_labels = N_WORDS;
    return true;
}

static bool has_words(const struct engine *e)
{
    const struct engine_loaded *l = e->loaded;

    return l->model.arch->ranks_by_words && l->tokenizer && FILE_TENSOR(e, head)->data &&
           tokenizer_find(l->tokenizer, STR("yes")) >= 0 && tokenizer_find(l->tokenizer, STR("no")) >= 0;
}

bool pool_ranks(const struct engine *e)
{
    return FILE_TENSOR(e, rank_out) || has_words(e);
}

static bool fill_room(const struct engine *e, struct pool_room *room, struct err *err)
{
    room->rows = mem_alloc_array((size_t)MOST_ROWS * e->loaded->model.config.n_cols, sizeof *room->rows);
    if (!room->rows)
        return err_memory(err, "embeddings");
    room->n_labels = e->loaded->model.embedder.n_labels;
    return take(FILE_TENSOR(e, out_norm), &room->norm, err) &&
           take(FILE_TENSOR(e, rank_dense), &room->rank_dense, err) &&
           take(FILE_TENSOR(e, rank_dense_bias), &room->rank_dense_bias, err) &&
           take(FILE_TENSOR(e, rank_out), &room->rank_out, err) &&
           take(FILE_TENSOR(e, rank_out_bias), &room->rank_out_bias, err) &&
           take(FILE_TENSOR(e, embed_dense), &room->embed_dense, err) &&
           take(FILE_TENSOR(e, embed_out), &room->embed_out, err) &&
           (room->rank_out || !has_words(e) || take_words(e, room, err));
}

void pool_room_free(struct pool_room *room)
{
    if (!room)
        return;
    mem_free(room->norm);
    mem_free(room->rows);
    mem_free(room->rank_dense);
    mem_free(room->rank_dense_bias);
    mem_free(room->rank_out);
    mem_free(room->rank_out_bias);
    mem_free(room->embed_dense);
    mem_free(room->embed_out);
    mem_free(room);
}

static bool make_room(struct engine *e, struct err *err)
{
    struct pool_room *room = mem_alloc(sizeof *room);

    if (!room)
        return err_memory(err, "embeddings");
    *room = (struct pool_room){ 0 };
    if (!fill_room(e, room, err)) {
        pool_room_free(room);
        return false;
    }
    e->pool_room = room;
    return true;
}

// ---- a request

static enum ingot_embed kind_of(const struct engine *e, enum ingot_embed kind)
{
    static const enum ingot_embed kinds[] = { [POOLING_NONE] = INGOT_EMBED_MEAN,
                                              [POOLING_MEAN] = INGOT_EMBED_MEAN,
                                              [POOLING_CLS] = INGOT_EMBED_CLS,
                                              [POOLING_LAST] = INGOT_EMBED_LAST,
                                              [POOLING_RANK] = INGOT_EMBED_MEAN };

    return kind == INGOT_EMBED_MODEL ? kinds[e->loaded->model.embedder.pooling] : kind;
}

static bool check(const struct engine *e, const struct ingot_request_options *o, struct err *err)
{
    uint32_t n_vector = e->loaded->model.embedder.n_vector;

    if ((unsigned)o->embed > INGOT_EMBED_RANK)
        return err_set(err, ERR_INPUT, "embed is %u; want one of enum ingot_embed", (unsigned)o->embed);
    if (o->embed == INGOT_EMBED_NONE && e->loaded->model.arch->is_encoder)
        return err_set(err, ERR_UNSUPPORTED,
                       "%s models make embeddings and generate no text; use ingot embed, or /v1/embeddings",
                       e->loaded->model.arch->name);
    if (e->loaded->model.arch->is_encoder && (o->n_logits || o->n_logprobs))
        return err_set(err, ERR_UNSUPPORTED, "%s models have no logits", e->loaded->model.arch->name);
    if (o->embed == INGOT_EMBED_RANK && !pool_ranks(e))
        return err_set(err, ERR_UNSUPPORTED, "this model is no reranker: it has no head for scores");
    return o->n_dimensions <= n_vector ||
           err_set(err, ERR_INPUT, "dimensions is %u; this model's embeddings have %u", o->n_dimensions,
                   n_vector);
}

bool pool_create(struct pool *p, struct engine *e, const struct ingot_request_options *o, struct err *err)
{
    const struct model *m = &e->loaded->model;

    if (!check(e, o, err))
        return false;
    *p = (struct pool){ .kind = kind_of(e, o->embed),
                        .no_normalize = o->no_normalize,
                        .n_cols = m->config.n_cols };
    if (p->kind == INGOT_EMBED_NONE)
        return true;
    p->is_first = p->kind == INGOT_EMBED_CLS || (p->kind == INGOT_EMBED_RANK && m->arch->is_encoder);
    p->n_numbers = o->n_dimensions ? o->n_dimensions : m->embedder.n_vector;
    pthread_mutex_lock(&e->making);
    bool ok = e->pool_room || make_room(e, err);
    pthread_mutex_unlock(&e->making);
    if (!ok)
        return false;
    p->sum = mem_alloc_array(p->n_cols, sizeof *p->sum);
    p->vector = mem_alloc_array(m->embedder.n_vector, sizeof *p->vector);
    return (p->sum && p->vector) || err_memory(err, "an embedding");
}

void pool_release(struct pool *p)
{
    mem_free(p->sum);
    mem_free(p->vector);
    p->sum = NULL;
    p->vector = NULL;
}

bool pool_wants(const struct pool *p, uint32_t position, uint32_t n_prompt)
{
    if (p->kind == INGOT_EMBED_NONE || p->kind == INGOT_EMBED_MEAN)
        return p->kind == INGOT_EMBED_MEAN;
    return position == (p->is_first ? 0 : n_prompt - 1);
}

// A prompt that is prefilled again starts a new sum.
static void add_row(struct pool *p, const struct pool_room *room, float eps, uint32_t position,
                    const float *row)
{
    double squares = 0;

    if (position == 0 || p->kind != INGOT_EMBED_MEAN) {
        memset(p->sum, 0, p->n_cols * sizeof *p->sum);
        p->n_rows = 0;
    }
    for (uint32_t i = 0; i < p->n_cols && room->norm; i++)
        squares += (double)row[i] * row[i];
    double factor = room->norm ? 1 / sqrt(squares / p->n_cols + (double)eps) : 1;
    for (uint32_t i = 0; i < p->n_cols; i++)
        p->sum[i] += room->norm ? row[i] * factor * room->norm[i] : row[i];
    p->n_rows++;
}

// Reads the hidden states of rows of the step that is over.
static bool read_rows(struct engine *e, uint32_t first, uint32_t n, float *to, struct err *err)
{
    const struct buffer *block = &e->loaded->stages[e->loaded->n_stages - 1].block;
    uint32_t n_cols = e->loaded->model.config.n_cols;
    uint64_t bytes = n_cols * sizeof *to;

    if (!e->loaded->remote)
        return buffer_read(block, first * bytes, to, n * bytes, err);
    for (uint32_t i = 0; i < n; i++) {
        const float *hidden = remote_hidden(e->loaded->remote, e->batch, first + i);
        if (!hidden)
            return err_set(err, ERR_DEVICE, "the last rank sent no hidden state of row %u", first + i);
        memcpy(to + (size_t)i * n_cols, hidden, bytes);
    }
    return true;
}

static bool is_wanted(const struct batch_row *row)
{
    return row->pooled_by && row->pooled_by->state != REQUEST_DONE;
}

bool pool_collect(struct engine *e, struct err *err)
{
    const struct model *m = &e->loaded->model;
    const struct batch *b = e->batch;

    for (uint32_t first = 0, n; first<b->n_rows; first += n> 0 ? n : 1) {
        for (n = 0; n < MOST_ROWS && first + n < b->n_rows && is_wanted(&b->rows[first + n]);)
            n++;
        if (n > 0 && !read_rows(e, first, n, e->pool_room->rows, err))
            return false;
        for (uint32_t i = 0; i < n; i++)
            add_row(&b->rows[first + i].pooled_by->pool, e->pool_room, m->factors.eps,
                    b->rows[first + i].position, e->pool_room->rows + (size_t)i * m->config.n_cols);
    }
    return true;
}

// ---- behind pooling

static double dot(const float *w, const double *x, uint32_t n)
{
    double sum = 0;

    for (uint32_t i = 0; i < n; i++)
        sum += (double)w[i] * x[i];
    return sum;
}

// out [n_out] = w [n_out, n] x (+ bias). NULL: no memory.
static double *product(const float *w, const float *bias, const double *x, uint32_t n, uint32_t n_out)
{
    double *out = mem_alloc_array(n_out, sizeof *out);

    for (uint32_t i = 0; out && i < n_out; i++)
        out[i] = dot(w + (size_t)i * n, x, n) + (bias ? (double)bias[i] : 0);
    return out;
}

static bool score(struct pool *p, const struct pool_room *room, struct err *err)
{
    double logits[2] = { 0 }, *hidden = p->sum;

    if (room->rank_dense) {
        hidden = product(room->rank_dense, room->rank_dense_bias, p->sum, p->n_cols, p->n_cols);
        for (uint32_t i = 0; hidden && i < p->n_cols; i++)
            hidden[i] = tanh(hidden[i]);
    }
    for (uint32_t i = 0; hidden && i < room->n_labels; i++)
        logits[i] = dot(room->rank_out + (size_t)i * p->n_cols, hidden, p->n_cols) +
                    (room->rank_out_bias ? (double)room->rank_out_bias[i] : 0);
    if (hidden != p->sum)
        mem_free(hidden);
    if (!hidden)
        return err_memory(err, "a score");
    p->vector[0] = (float)(1 / (1 + exp(logits[NO] - logits[YES]))); // without a second label it is 0
    p->n_numbers = 1;
    return isfinite(p->vector[0]) ||
           err_set(err, ERR_NUMERIC, "the score is NaN; the model file may be damaged");
}

// The two products that EmbeddingGemma has there; else the pooled vector itself.
static bool project(struct pool *p, const struct engine *e, double **x, struct err *err)
{
    const struct model_embedder *m = &e->loaded->model.embedder;
    const struct pool_room *room = e->pool_room;

    for (uint32_t i = 0; i < p->n_cols; i++)
        p->sum[i] /= p->n_rows;
    *x = p->sum;
    if (!room->embed_dense)
        return true;
    double *hidden = product(room->embed_dense, NULL, p->sum, p->n_cols, m->n_hidden);
    *x = hidden ? product(room->embed_out, NULL, hidden, m->n_hidden, m->n_vector) : NULL;
    mem_free(hidden);
    return *x || err_memory(err, "an embedding");
}

bool pool_finish(struct pool *p, const struct engine *e, struct err *err)
{
    double squares = 0, *x;

    if (p->kind == INGOT_EMBED_RANK)
        return score(p, e->pool_room, err);
    if (!project(p, e, &x, err))
        return false;
    for (uint32_t i = 0; i < p->n_numbers; i++)
        squares += x[i] * x[i];
    double length = p->no_normalize ? 1 : sqrt(squares);
    for (uint32_t i = 0; i < p->n_numbers; i++)
        p->vector[i] = (float)(x[i] / length);
    if (x != p->sum)
        mem_free(x);
    return (squares > 0 && squares < INFINITY) ||
           err_set(err, ERR_NUMERIC,
                   "the prompt's hidden states hold NaN or infinity; the model file may be damaged");
}
