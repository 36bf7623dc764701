// stage.c - see stage.h.
#include "engine/stage/stage.h"
#include <stddef.h>
#include <string.h>
#include "base/mem.h"
#include "engine/stage/take.h"
#include "models/arch.h"

// The last bucket takes every step.
static const uint32_t BUCKET_ROWS[N_BUCKETS - 1] = { 1, 8, 16, 32, 64, 128, 256 };

// Copies the tensor, stores the weight's address in its place, and reports progress.
static bool take_into(struct stage *s, const struct file_tensor *t, enum weight_use use,
                      const struct weight **place, struct stage_progress *progress, struct err *err)
{
    struct weight *w = &s->weights[s->n_weights];

    if (!t)
        return true;
    if (!take_tensor(&(struct take){ s->device, s->names, s->parts.model->file }, t, use, w, err))
        return err_prefix(err, "tensor %.*s", STR_ARG(t->name));
    s->n_weights++;
    *place = w;
    progress->done += t->bytes;
    if (progress->report && !progress->report(progress->arg, progress->done, progress->total))
        return err_set(err, ERR_CANCELLED, "loading was stopped");
    return true;
}

// A stack of matrices is one matrix. A tensor with one row is a vector, whatever its dimensions.
static struct file_tensor flattened(const struct file_tensor *t, bool is_vector)
{
    struct file_tensor flat = *t;
    uint64_t n_rows = t->dims[0], n_cols = t->dims[1] * t->dims[2] * t->dims[3];

    flat.n_dims = is_vector ? 1 : t->n_dims > 2 ? 2 : t->n_dims;
    if (is_vector)
        memcpy(flat.dims, (uint64_t[TENSOR_MAX_DIMS]){ n_rows * n_cols, 1, 1, 1 }, sizeof flat.dims);
    else if (t->n_dims == 3)
        memcpy(flat.dims, (uint64_t[TENSOR_MAX_DIMS]){ n_rows * t->dims[1], t->dims[2], 1, 1 },
               sizeof flat.dims);
    return flat;
}

// Parts that are separate in the file are joined first. The device may use these bytes in place: they live as
// long as the weight, or until the device has made its own copy.
static bool take_layer_tensor(struct stage *s, size_t place, const struct file_tensor *t,
                              struct stage_progress *progress, struct err *err)
{
    const struct model *m = s->parts.model;
    struct file_tensor flat = flattened(t, m->is_vector[place % m->n_places]);
    unsigned char *joined = t->data ? NULL : mem_alloc_aligned(t->bytes, 64);

    if (!t->data && !joined)
        return err_memory(err, "the experts of a layer, joined");
    if (joined)
        model_tensor_read(t, 0, t->dims[0] * t->dims[1] * t->dims[2], joined);
    flat.data = joined ? joined : t->data;
    bool ok = take_into(s, &flat, WEIGHT_PRODUCT, &s->layers[place], progress, err);
    if (ok && joined && s->weights[s->n_weights - 1].buffer.host == joined)
        s->joined[s->n_weights - 1] = joined;
    else
        mem_free_aligned(joined);
    return ok;
}

static bool take_frequencies(struct stage *s, const struct model *m, struct err *err)
{
    struct weight *w = &s->weights[s->n_weights];

    s->n_weights++;
    s->parts.weights.frequencies = w;
    return take_numbers(&(struct take){ s->device, s->names, m->file }, m->frequencies,
                        m->config.rope.n_dims / 2, "frequencies", w, err);
}

// The last norm's scale carries the factor of the logits.
static bool take_out_norm(struct stage *s, const struct file_tensor *t, struct stage_progress *progress,
                          struct err *err)
{
    const struct model *m = s->parts.model;
    uint32_t n = m->config.n_cols;

    if (m->factors.head == 1)
        return take_into(s, t, WEIGHT_PRODUCT, &s->parts.weights.out_norm, progress, err);
    float *scale = mem_alloc_array(n, sizeof *scale);
    if (!scale)
        return err_memory(err, "a vector");
    quant_info(t->format)->decode(t->data, scale, n);
    for (uint32_t i = 0; i < n; i++)
        scale[i] *= m->factors.head;
    struct weight *w = &s->weights[s->n_weights];
    s->n_weights++;
    s->parts.weights.out_norm = w;
    bool ok = take_numbers(&(struct take){ s->device, s->names, m->file }, scale, n,
                           "output_norm with the logits' factor", w, err);
    mem_free(scale);
    return ok;
}

static bool take_weights(struct stage *s, const struct model *m, struct stage_progress *progress,
                         struct err *err)
{
    uint32_t n_layers = s->parts.last - s->parts.first;
    struct model_weights *globals = &s->parts.weights;

    s->weights = mem_alloc_array((size_t)n_layers * m->n_places + N_MODEL_WEIGHTS + 1, sizeof *s->weights);
    s->joined = mem_alloc_array((size_t)n_layers * m->n_places + N_MODEL_WEIGHTS + 1, sizeof *s->joined);
    s->layers = mem_alloc_array((size_t)n_layers * m->n_places, sizeof *s->layers);
    s->names = arena_create((size_t)1 << 26);
    if (!s->weights || !s->joined || !s->layers || !s->names)
        return err_memory(err, "a stage's weights");
    s->parts.layers = s->layers;
    const struct file_tensor *embed = m->tensors[offsetof(struct model_weights, embed) / sizeof(void *)];
    const struct file_tensor *norm = m->tensors[offsetof(struct model_weights, out_norm) / sizeof(void *)];
    const struct file_tensor *head = m->tensors[offsetof(struct model_weights, head) / sizeof(void *)];
    if (!take_frequencies(s, m, err) ||
        (s->parts.first == 0 && !take_into(s, embed, WEIGHT_ROWS, &globals->embed, progress, err)))
        return false;
    const struct file_tensor **tensors = model_layer(m, s->parts.first);
    for (size_t i = 0; i < (size_t)n_layers * m->n_places; i++)
        if (tensors[i] && !take_layer_tensor(s, i, tensors[i], progress, err))
            return false;
    return s->parts.last != m->config.n_layers ||
           (take_out_norm(s, norm, progress, err) &&
            take_into(s, head, WEIGHT_PRODUCT, &globals->head, progress, err));
}

static bool make_pages(struct stage *s, const struct model_config *c, struct err *err)
{
    uint32_t n_layers = s->parts.last - s->parts.first;
    struct model_page bytes = model_page_bytes(c, s->shape.k_format, s->shape.v_format);
    struct page_shape shape = { c->n_kv_heads, c->head_dim, s->shape.max_pages, (u16)s->shape.k_format,
                                (u16)s->shape.v_format };

    s->pages = mem_alloc_array(n_layers, sizeof *s->pages);
    s->page_buffers = mem_alloc_array((size_t)n_layers * 2, sizeof *s->page_buffers);
    if (!s->pages || !s->page_buffers)
        return err_memory(err, "a stage's pages");
    s->parts.pages = s->pages;
    for (uint32_t l = 0; l < n_layers; l++) {
        struct buffer *kv = &s->page_buffers[2 * l];
        if (!buffer_alloc_local(s->device, s->shape.n_pages * bytes.k, &kv[0], err) ||
            (bytes.v && !buffer_alloc_local(s->device, s->shape.n_pages * bytes.v, &kv[1], err)))
            return err_prefix(err, "KV pages for %u tokens", s->shape.n_pages * PAGE_TOKENS);
        s->pages[l] = (struct pages){ &kv[0], bytes.v ? &kv[1] : NULL, &s->table, shape };
    }
    return true;
}

// On the device of the stage before, a stage works on the same block, page table and history. CPUs that are
// two devices share the block.
static void borrow_buffers(struct stage *s, const struct stage *before)
{
    if (!before)
        return;
    s->borrows_tables = before->device == s->device;
    s->borrows_block = s->borrows_tables || (!before->device->queue && !s->device->queue);
    if (s->borrows_block)
        s->block = before->block;
    if (s->borrows_tables) {
        s->table = before->table;
        s->history = before->history;
    }
}

static bool make_tables(struct stage *s, struct err *err)
{
    const struct stage_shape *h = &s->shape;

    return s->borrows_tables ||
           (buffer_alloc(s->device, (uint64_t)h->n_slots * h->max_pages * 4, &s->table, err) &&
            buffer_alloc(s->device, (uint64_t)h->n_slots * h->history_stride * 4, &s->history, err));
}

static bool make_buffers(struct stage *s, const struct model_config *c, struct err *err)
{
    const struct stage_shape *h = &s->shape;
    struct device *d = s->device;
    bool last = s->parts.last == c->n_layers;

    s->parts.block = &s->block;
    s->parts.history = &s->history;
    s->parts.history_stride = h->history_stride;
    s->parts.logits = &s->logits;
    s->parts.results = &s->results;
    s->parts.mask_bias = &s->mask_bias;
    return make_tables(s, err) &&
           (s->borrows_block || buffer_alloc(d, (uint64_t)h->max_rows * c->n_cols * 4, &s->block, err)) &&
           buffer_alloc(d, step_bytes(h->max_rows, h->max_outputs), &s->step, err) &&
           (!last || (buffer_alloc_local(d, (uint64_t)h->max_outputs * c->n_vocab * 4, &s->logits, err) &&
                      buffer_alloc(d, (uint64_t)h->max_outputs * 4, &s->results, err) &&
                      buffer_alloc(d, (uint64_t)h->max_outputs * sample_mask_bias_words(c->n_vocab) * 4,
                                   &s->mask_bias, err)));
}

static uint32_t at_most(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

bool stage_create(struct stage *s, const struct stage_plan *plan, struct stage_progress *progress,
                  struct err *err)
{
    const struct stage_shape *shape = plan->shape;
    const struct model *m = plan->model;

    *s = (struct stage){ .device = plan->device, .shape = *shape };
    s->parts = (struct model_stage){
        .model = m, .first = plan->layers.first, .last = plan->layers.last, .pool = plan->pool
    };
    for (uint32_t i = 0; i < N_BUCKETS; i++) {
        uint32_t rows = i < N_BUCKETS - 1 ? BUCKET_ROWS[i] : shape->max_rows;
        s->buckets[i] =
            (struct bucket){ at_most(rows, shape->max_rows), at_most(rows, shape->max_outputs), NULL };
    }
    borrow_buffers(s, plan->before);
    if (make_buffers(s, &m->config, err) && make_pages(s, &m->config, err) &&
        take_weights(s, m, progress, err))
        return true;
    stage_release(s);
    return false;
}

void stage_release(struct stage *s)
{
    for (uint32_t i = 0; i < N_BUCKETS; i++)
        tape_destroy(s->buckets[i].tape);
    for (uint32_t i = 0; s->joined && i < s->n_weights; i++)
        mem_free_aligned(s->joined[i]);
    mem_free(s->joined);
    for (uint32_t i = 0; s->weights && i <= s->n_weights;
         i++) // one more: a weight that was being copied when loading failed
        weight_release(&s->weights[i]);
    for (uint32_t i = 0; s->page_buffers && i < 2 * (s->parts.last - s->parts.first); i++)
        buffer_release(&s->page_buffers[i]);
    if (s->borrows_block)
        s->block = (struct buffer){ 0 };
    if (s->borrows_tables)
        s->table = s->history = (struct buffer){ 0 };
    struct buffer *buffers[] = { &s->table,   &s->history,   &s->block, &s->logits,
                                 &s->results, &s->mask_bias, &s->step };
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        buffer_release(buffers[i]);
    arena_destroy(s->names);
    mem_free(s->weights);
    mem_free(s->layers);
    mem_free(s->pages);
    mem_free(s->page_buffers);
    *s = (struct stage){ 0 };
}

uint32_t stage_bucket_index(const struct stage *s, uint32_t n_rows, uint32_t n_outputs)
{
    for (uint32_t i = 0; i < N_BUCKETS; i++)
        if (n_rows <= s->buckets[i].max_rows && n_outputs <= s->buckets[i].max_outputs)
            return i;
    CHECK(!"a step larger than the engine's limits");
    return 0;
}

struct bucket *stage_bucket(struct stage *s, uint32_t n_rows, uint32_t n_outputs, struct err *err)
{
    struct bucket *b = &s->buckets[stage_bucket_index(s, n_rows, n_outputs)];

    if (b->tape)
        return b;
    struct tape *t =
        tape_create(s->device, (struct tape_limits){ b->max_rows, b->max_outputs, s->shape.exact,
                                                     s->shape.parts, s->shape.invariant, s->shape.gemm });
    if (!t) {
        err_memory(err, "a tape");
        return NULL;
    }
    model_record(t, &s->parts);
    if (!tape_seal(t, err)) {
        tape_destroy(t);
        return NULL;
    }
    b->tape = t;
    return b;
}

bool stage_play(struct stage *s, const struct step *step, struct err *err)
{
    struct bucket *b = stage_bucket(s, step->n_rows, step->n_outputs, err);

    return b && buffer_write(&s->step, 0, step, step_bytes(step->max_rows, step->max_outputs), err) &&
           (s->watch.before ? tape_play_watched(b->tape, &s->step, &s->watch, err)
                            : tape_play(b->tape, &s->step, err));
}

bool stage_table_write(struct stage *s, const struct kv *kv, uint32_t slot, uint32_t from, struct err *err)
{
    uint64_t at = (uint64_t)slot * kv->max_pages + from;
    uint32_t to = kv->n_taken[slot];

    return from >= to || s->borrows_tables ||
           buffer_write(&s->table, at * 4, kv->table + at, (uint64_t)(to - from) * 4, err);
}

bool stage_history_write(struct stage *s, uint32_t slot, const uint32_t *tokens, uint32_t n, struct err *err)
{
    return n == 0 || s->borrows_tables ||
           buffer_write(&s->history, (uint64_t)slot * s->shape.history_stride * 4, tokens, (uint64_t)n * 4,
                        err);
}

bool stage_page_move(struct stage *s, uint32_t page, unsigned char **at, bool to_device, struct err *err)
{
    for (uint32_t i = 0; i < 2 * (s->parts.last - s->parts.first); i++) {
        struct buffer *b = &s->page_buffers[i];
        uint64_t bytes = b->bytes / s->shape.n_pages, offset = page * bytes;
        if (bytes > 0 && // there may be no V
            !(to_device ? buffer_write(b, offset, *at, bytes, err) : buffer_read(b, offset, *at, bytes, err)))
            return false;
        *at += bytes;
    }
    return true;
}

uint64_t stage_page_bytes(const struct stage *s)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < 2 * (s->parts.last - s->parts.first); i++)
        bytes += s->page_buffers[i].bytes;
    return bytes;
}

bool stage_constraint_write(struct stage *s, uint32_t i, const struct stage_constraint *constraint,
                            struct err *err)
{
    uint32_t n_vocab = s->parts.model->config.n_vocab, n_words = sample_mask_words(n_vocab);
    uint64_t at = (uint64_t)i * sample_mask_bias_words(n_vocab) * 4;

    return (!constraint->mask ||
            buffer_write(&s->mask_bias, at, constraint->mask, (uint64_t)n_words * 4, err)) &&
           (constraint->n_biases == 0 ||
            buffer_write(&s->mask_bias, at + (uint64_t)n_words * 4, constraint->biases,
                         constraint->n_biases * sizeof *constraint->biases, err));
}
