// pool.c - see pool.h.
#include "engine/pool.h"
#include <math.h>
#include <stddef.h>
#include "base/mem.h"
#include "engine/request.h"

static const struct file_tensor *last_norm(const struct engine *e)
{
    return e->loaded->model.tensors[offsetof(struct model_weights, out_norm) / sizeof(void *)];
}

// Makes the last norm's scale and a buffer of one row, shared by all requests.
static bool make_room(struct engine *e, struct err *err)
{
    uint32_t n = e->loaded->model.config.n_cols;
    float *room = mem_alloc_array((size_t)2 * n, sizeof *room);

    if (!room)
        return err_memory(err, "embeddings");
    quant_info(last_norm(e)->format)->decode(last_norm(e)->data, room, n);
    e->pool_room = room;
    return true;
}

bool pool_create(struct pool *p, struct engine *e, enum ingot_embed kind, struct err *err)
{
    *p = (struct pool){ .kind = kind, .n_cols = e->loaded->model.config.n_cols };
    if (kind == INGOT_EMBED_NONE)
        return true;
    pthread_mutex_lock(&e->making);
    bool ok = e->pool_room || make_room(e, err);
    pthread_mutex_unlock(&e->making);
    if (!ok)
        return false;
    p->sum = mem_alloc_array(p->n_cols, sizeof *p->sum);
    p->vector = mem_alloc_array(p->n_cols, sizeof *p->vector);
    return (p->sum && p->vector) || err_memory(err, "an embedding");
}

void pool_release(struct pool *p)
{
    mem_free(p->sum);
    mem_free(p->vector);
    p->sum = NULL;
    p->vector = NULL;
}

// A prompt that is prefilled again starts a new sum.
static void add_row(struct pool *p, const float *scale, const float *row, float eps, uint32_t position)
{
    double squares = 0;

    if (position == 0 || p->kind == INGOT_EMBED_LAST) {
        memset(p->sum, 0, p->n_cols * sizeof *p->sum);
        p->n_rows = 0;
    }
    for (uint32_t i = 0; i < p->n_cols; i++)
        squares += (double)row[i] * row[i];
    double factor = 1 / sqrt(squares / p->n_cols + (double)eps);
    for (uint32_t i = 0; i < p->n_cols; i++)
        p->sum[i] += row[i] * factor * scale[i];
    p->n_rows++;
}

bool pool_collect(struct engine *e, struct err *err)
{
    const struct model_config *c = &e->loaded->model.config;
    const struct buffer *block = &e->loaded->stages[e->loaded->n_stages - 1].block;
    uint64_t bytes = c->n_cols * sizeof(float);

    for (uint32_t i = 0; i < e->batch->n_rows; i++) {
        const struct batch_row *row = &e->batch->rows[i];
        if (!row->pooled_by || row->pooled_by->state == REQUEST_DONE)
            continue;
        if (!buffer_read(block, i * bytes, e->pool_room + c->n_cols, bytes, err))
            return false;
        add_row(&row->pooled_by->pool, e->pool_room, e->pool_room + c->n_cols, e->loaded->model.factors.eps,
                row->position);
    }
    return true;
}

bool pool_finish(struct pool *p, struct err *err)
{
    double squares = 0;

    for (uint32_t i = 0; i < p->n_cols; i++)
        squares += p->sum[i] * p->sum[i];
    if (!(squares > 0 && squares < INFINITY))
        return err_set(err, ERR_NUMERIC,
                       "the prompt's hidden states hold NaN or infinity; the model file may be damaged");
    for (uint32_t i = 0; i < p->n_cols; i++)
        p->vector[i] = (float)(p->sum[i] / sqrt(squares));
    return true;
}
