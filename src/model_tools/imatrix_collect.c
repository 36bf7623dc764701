// imatrix_collect.c - see imatrix_collect.h. Before a command is played, its input is read back and its
// squares are added. Products that are fused with the norm before them have their input in front of that
// norm, which is applied here.
#include "model_tools/imatrix_collect.h"
#include <math.h>
#include "base/mem.h"
#include "engine/api.h"
#include "engine/stage/away.h"
#include "models/arch.h"
#include "ops/experts/experts.h"
#include "ops/gate_up/gate_up.h"
#include "ops/matmul/matmul.h"
#include "ops/ops.h"
#include "ops/qkv/qkv.h"

struct named_weight {
    const struct weight *weight;
    struct str name;
    uint32_t layer;
};

struct collector {
    struct imatrix *m;
    struct moments *moments;      // or NULL
    struct named_weight *weights; // of all layers
    size_t n_weights;
    struct buf rows, norm, ids; // copies of operands
    double *squares;            // [n_squares], column by column
    size_t n_squares;
};

// Rows of an operand, on the host.
struct input_rows {
    const float *at;
    uint32_t n, n_cols;
};

// ---- the names of weights

static bool add_weight(struct collector *c, const struct weight *w, const char *gguf, uint32_t layer)
{
    const char *mark = strstr(gguf, "%u");
    char *name =
        mark ? arena_printf(c->m->arena, "%.*s%u%s", (int)(mark - gguf), gguf, layer, mark + 2) : NULL;

    if (name)
        c->weights[c->n_weights++] = (struct named_weight){ w, str_from(name), layer };
    return name != NULL;
}

static bool name_stage(struct collector *c, const struct stage *s)
{
    const struct model *m = s->parts.model;

    for (uint32_t l = s->parts.first; l < s->parts.last; l++)
        for (uint32_t i = 0; i < m->arch->n_weights; i++) {
            const struct weight_key *k = &m->arch->weights[i];
            const struct weight *w = k->per_layer && model_has(m, k, l)
                                         ? s->layers[(size_t)(l - s->parts.first) * m->n_places + k->place]
                                         : NULL;
            if (w && k->gguf && !add_weight(c, w, k->gguf, l))
                return false;
        }
    return true;
}

static bool name_weights(struct collector *c, const struct engine_loaded *l, struct err *err)
{
    bool ok;

    c->weights =
        mem_alloc_array((size_t)l->model.config.n_layers * l->model.arch->n_weights, sizeof *c->weights);
    ok = c->weights != NULL;
    for (uint32_t i = 0; i < l->n_stages && ok; i++)
        ok = name_stage(c, &l->stages[i]) && (!l->stages[i].away || name_stage(c, &l->stages[i].away->stage));
    return ok || err_memory(err, "the names of weights");
}

static const struct named_weight *named(const struct collector *c, const struct weight *w)
{
    for (size_t i = 0; i < c->n_weights; i++)
        if (c->weights[i].weight == w)
            return &c->weights[i];
    return NULL;
}

// ---- operands

static const void *read_back(struct buf *to, const struct operand *o, struct err *err)
{
    to->n = 0;
    if (!buf_reserve(to, o->bytes)) {
        err_memory(err, "a copy of activations");
        return NULL;
    }
    return buffer_read(o->buffer, o->offset, to->at, o->bytes, err) ? to->at : NULL;
}

static bool read_rows(struct collector *c, const struct operand *o, uint32_t n_rows, struct input_rows *rows,
                      struct err *err)
{
    *rows =
        (struct input_rows){ read_back(&c->rows, o, err), n_rows, (uint32_t)(o->row_bytes / sizeof(float)) };
    return rows->at != NULL;
}

// x / rms(x) * scale, in place.
static bool apply_norm(struct collector *c, const struct operand *norm, float eps,
                       const struct input_rows *rows, struct err *err)
{
    const struct quant_info *info = quant_info(norm->weight->format);
    const void *bytes = read_back(&c->ids, norm, err);
    float *x = (float *)(void *)c->rows.at;

    c->norm.n = 0;
    if (!bytes || !buf_reserve(&c->norm, rows->n_cols * sizeof(float)))
        return bytes ? err_memory(err, "a norm") : false;
    float *scale = (float *)(void *)c->norm.at;
    info->decode(bytes, scale, rows->n_cols);
    for (uint32_t r = 0; r < rows->n; r++, x += rows->n_cols) {
        double squares = 0;
        for (uint32_t i = 0; i < rows->n_cols; i++)
            squares += (double)x[i] * (double)x[i];
        double factor = 1 / sqrt(squares / rows->n_cols + (double)eps);
        for (uint32_t i = 0; i < rows->n_cols; i++)
            x[i] = (float)((double)x[i] * factor * (double)scale[i]);
    }
    return true;
}

// ---- sums

static struct imatrix_entry *entry_of(struct collector *c, const struct operand *o, const uint32_t sizes[2],
                                      struct err *err)
{
    const struct named_weight *w = named(c, o->weight);
    struct imatrix_entry like = { .n_sums = (uint64_t)sizes[0] * sizes[1], .n_counts = sizes[0] };

    if (!w)
        return NULL; // the head, or nothing's that quantize knows
    like.name = w->name;
    return imatrix_add(c->m, &like, err);
}

static void add_squares(double *sums, const float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        sums[i] += (double)x[i] * (double)x[i];
}

static bool add_moments(struct collector *c, const struct input_rows *rows, const struct operand *weights,
                        uint32_t n_weights, struct err *err)
{
    struct str names[3];
    struct moments_rows read = { .names = names, .at = rows->at, .n = rows->n, .n_cols = rows->n_cols };

    for (uint32_t i = 0; i < n_weights && c->moments; i++) {
        const struct named_weight *w = weights[i].weight ? named(c, weights[i].weight) : NULL;
        if (!w)
            continue;
        names[read.n_names++] = w->name;
        read.layer = w->layer;
    }
    return read.n_names == 0 || moments_add(c->moments, &read, err);
}

// The same rows for several weights: summed once.
static bool add_dense(struct collector *c, const struct input_rows *rows, const struct operand *weights,
                      uint32_t n_weights, struct err *err)
{
    const uint32_t sizes[2] = { 1, rows->n_cols };

    if (c->n_squares < rows->n_cols) {
        mem_free(c->squares);
        c->squares = mem_alloc_array(rows->n_cols, sizeof *c->squares);
        c->n_squares = c->squares ? rows->n_cols : 0;
    }
    if (c->n_squares == 0)
        return err_memory(err, "sums of squares");
    memset(c->squares, 0, rows->n_cols * sizeof *c->squares);
    for (uint32_t r = 0; r < rows->n; r++)
        add_squares(c->squares, rows->at + (size_t)r * rows->n_cols, rows->n_cols);
    for (uint32_t i = 0; i < n_weights; i++) {
        struct err failure = { 0 };
        struct imatrix_entry *e = weights[i].weight ? entry_of(c, &weights[i], sizes, &failure) : NULL;
        if (failure.code != ERR_NONE)
            return *err = failure, false;
        for (uint32_t j = 0; e && j < rows->n_cols; j++)
            e->sums[j] += c->squares[j];
        if (e)
            e->counts[0] += rows->n;
    }
    return add_moments(c, rows, weights, n_weights, err);
}

// What a command with experts reads: row r's slot j, `n_cols` numbers wide, goes to expert ids[r][j].
struct sent_rows {
    const struct input_rows *rows;
    const float *ids; // [rows, n_slots], as route gives them
    uint32_t n_slots, n_experts, n_cols;
    bool same; // all slots of a row read the same numbers
};

static bool add_sent(struct collector *c, const struct sent_rows *x, const struct operand *weight,
                     struct err *err)
{
    struct err failure = { 0 };
    struct imatrix_entry *e = entry_of(c, weight, (const uint32_t[2]){ x->n_experts, x->n_cols }, &failure);

    if (!e)
        return failure.code == ERR_NONE ? true : (*err = failure, false);
    for (uint32_t r = 0; r < x->rows->n; r++)
        for (uint32_t j = 0; j < x->n_slots; j++) {
            uint32_t expert = (uint32_t)x->ids[(size_t)r * x->n_slots + j];
            const float *at = x->rows->at + (size_t)r * x->rows->n_cols + (x->same ? 0 : j * x->n_cols);
            if (expert >= x->n_experts)
                continue;
            add_squares(e->sums + (size_t)expert * x->n_cols, at, x->n_cols);
            e->counts[expert]++;
        }
    return true;
}

// ---- commands

static bool collect_experts_up(struct collector *c, const struct command *k, const struct input_rows *in,
                               struct err *err)
{
    const struct experts_args *a = (const struct experts_args *)(const void *)k->args;
    const float *ids = read_back(&c->ids, &k->operands[EXPERTS_UP_IDS], err);
    const struct sent_rows sent = { in, ids, a->n_slots, a->n_experts, a->n_cols, true };

    return ids && add_sent(c, &sent, &k->operands[EXPERTS_UP_GATE], err) &&
           add_sent(c, &sent, &k->operands[EXPERTS_UP_UP], err) &&
           add_dense(c, in, &k->operands[EXPERTS_UP_SHARED_GATE], 2, err);
}

static bool collect_experts_down(struct collector *c, const struct command *k, const struct input_rows *in,
                                 struct err *err)
{
    const struct experts_args *a = (const struct experts_args *)(const void *)k->args;
    const float *ids = read_back(&c->ids, &k->operands[EXPERTS_DOWN_IDS], err);
    const struct sent_rows sent = { in, ids, a->n_slots, a->n_experts, a->n_ffn, false };
    float *shared =
        (float *)(void *)c->rows.at; // the shared expert's columns of all rows, brought together in place

    if (!ids || !add_sent(c, &sent, &k->operands[EXPERTS_DOWN_DOWN], err))
        return false;
    for (uint32_t r = 0; r < in->n; r++)
        memmove(shared + (size_t)r * a->n_shared, in->at + (size_t)r * in->n_cols + a->n_slots * a->n_ffn,
                a->n_shared * sizeof(float));
    const struct input_rows rows = { shared, in->n, a->n_shared };
    return a->n_shared == 0 || add_dense(c, &rows, &k->operands[EXPERTS_DOWN_SHARED], 1, err);
}

static bool collect(struct collector *c, const struct command *k, const struct input_rows *in,
                    struct err *err)
{
    switch (k->op) {
    case OP_matmul:
    case OP_trellis:
        return add_dense(c, in, &k->operands[MATMUL_W], 1, err);
    case OP_qkv:
        return apply_norm(c, &k->operands[QKV_NORM],
                          ((const struct qkv_args *)(const void *)k->args)->norm_eps, in, err) &&
               add_dense(c, in, &k->operands[QKV_WQ], 3, err);
    case OP_gate_up:
        return apply_norm(c, &k->operands[GATE_UP_NORM],
                          ((const struct gate_up_args *)(const void *)k->args)->eps, in, err) &&
               add_dense(c, in, &k->operands[GATE_UP_GATE], 2, err);
    case OP_experts_up:
        return collect_experts_up(c, k, in, err);
    default:
        return collect_experts_down(c, k, in, err);
    }
}

static bool multiplies(const struct command *k)
{
    return k->op == OP_matmul || k->op == OP_trellis || k->op == OP_qkv || k->op == OP_gate_up ||
           k->op == OP_experts_up || k->op == OP_experts_down;
}

static bool before_command(void *arg, const struct command *k, const struct step *step, struct err *err)
{
    struct collector *c = arg;
    struct input_rows in;
    bool head = (k->op == OP_matmul || k->op == OP_trellis) && !named(c, k->operands[MATMUL_W].weight);

    if (k->op == OP_trellis_experts)
        return err_set(
            err, ERR_UNSUPPORTED,
            "%s: experts of EXL3 keep what down reads to themselves; ingot takes an importance matrix "
            "from the model before it was quantised",
            k->label);
    if (!multiplies(k) || head)
        return true;
    return read_rows(c, &k->operands[0], step->n_rows, &in, err) && collect(c, k, &in, err);
}

// ---- the text

static void watch(const struct imatrix_job *job, struct tape_watch watch)
{
    const struct engine_loaded *l = job->engine->inner.loaded;

    for (uint32_t i = 0; i < l->n_stages; i++)
        stage_watch(&l->stages[i], watch);
}

struct imatrix_reading {
    const struct imatrix_job *job;
    uint32_t chunk;
};

static bool goes_on(void *arg)
{
    const struct imatrix_reading *r = arg;
    const struct imatrix_job *job = r->job;

    return !job->progress || job->progress(job->progress_arg, r->chunk, job->text->n_chunks);
}

static bool stopped(const struct imatrix_reading *r, struct err *err)
{
    return err_set(err, ERR_CANCELLED, "stopped after %u of %u chunks", r->chunk, r->job->text->n_chunks);
}

static bool read_chunk(struct imatrix_reading *r, struct err *err)
{
    const struct eval_text *t = r->job->text;
    struct ingot_request_options o = ingot_request_defaults();
    struct ingot_result result = { 0 };
    struct ingot_error error;

    o.tokens = t->tokens + (uint64_t)r->chunk * t->n_chunk;
    o.n_tokens = t->n_chunk;
    o.max_tokens = 1;
    o.on_step = goes_on;
    if (!ingot_generate(r->job->engine, &o, NULL, r, &result, &error))
        return err_set(err, (enum err_code)error.code, "%s", error.message);
    return result.finish != INGOT_FINISH_CANCELLED || stopped(r, err);
}

static bool read_chunks(const struct imatrix_job *job, struct imatrix *m, struct err *err)
{
    struct imatrix_reading r = { .job = job };

    m->n_chunk = job->text->n_chunk;
    for (m->n_chunks = 0; m->n_chunks < job->text->n_chunks; r.chunk = ++m->n_chunks) {
        if (!goes_on(&r))
            return stopped(&r, err);
        if (!read_chunk(&r, err))
            return false;
    }
    return true;
}

static bool check_finite(const struct imatrix *m, struct err *err)
{
    for (size_t i = 0; i < m->n; i++)
        for (uint64_t j = 0; j < m->entries[i].n_sums; j++)
            if (!isfinite(m->entries[i].sums[j]))
                return err_set(err, ERR_NUMERIC, "the input of %.*s holds NaN or infinity",
                               STR_ARG(m->entries[i].name));
    return true;
}

bool imatrix_collect(const struct imatrix_job *job, struct imatrix *m, struct err *err)
{
    struct collector c = { .m = m, .moments = job->moments };
    const struct engine_loaded *l = job->engine->inner.loaded;
    bool ok = l->n_parts ? err_set(err, ERR_UNSUPPORTED,
                                   "imatrix sees no ranks of a layer; leave out --tensor-parallel")
                         : name_weights(&c, l, err);

    if (ok) {
        watch(job, (struct tape_watch){ before_command, &c });
        ok = read_chunks(job, m, err) && check_finite(m, err);
        watch(job, (struct tape_watch){ 0 });
    }
    mem_free(c.weights);
    mem_free(c.squares);
    buf_free(&c.rows);
    buf_free(&c.norm);
    buf_free(&c.ids);
    return ok;
}
