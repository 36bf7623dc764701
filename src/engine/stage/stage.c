// stage.c - see stage.h.
#include "engine/stage/stage.h"
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include "base/mem.h"
#include "base/thread_pool.h"
#include "device/tape_exchange.h"
#include "engine/stage/adapters.h"
#include "engine/stage/away.h"
#include "engine/kv/kv_window.h"
#include "engine/stage/take.h"
#include "models/arch.h"
#include "models/draft/draft_layer.h"
#include "models/mixture.h"
#include "models/trellis_tensor.h"

enum { READ_APART = 1 << 18 }; // numbers from which on several threads read them

struct taking {
    enum weight_use use;
    const struct weight **place;
    struct stage_progress *progress;
};

// The last bucket takes every step.
static const uint32_t BUCKET_ROWS[N_BUCKETS - 1] = { 1, 8, 16, 32, 64, 128, 256, 512, 1024 };

struct reading {
    const struct file_tensor *t;
    unsigned char *to;
    uint64_t n, range;
    atomic_uint_fast64_t next;
};

static void read_ranges(void *arg, unsigned thread)
{
    struct reading *r = arg;
    const struct quant_info *info = quant_info(r->t->format);

    (void)thread;
    for (uint64_t at; (at = atomic_fetch_add(&r->next, r->range)) < r->n;)
        model_tensor_read(r->t, at, r->n - at < r->range ? r->n - at : r->range,
                          r->to + at / info->block_elements * info->block_bytes);
}

// By all processors where it takes a while: codes have to be decoded.
static void read_all(struct stage *s, const struct file_tensor *t, void *to)
{
    struct reading r = { t, to, t->dims[0] * t->dims[1] * t->dims[2], model_tensor_range(t), 0 };
    bool apart = r.n >= READ_APART;

    if (apart && !s->readers)
        s->readers = thread_pool_create(thread_count_available());
    if (apart && s->readers)
        thread_pool_run(s->readers, read_ranges, &r);
    else
        read_ranges(&r, 0);
}

// Reads into memory what the file does not hold in the needed form. flat: the tensor's shape as a matrix.
static bool bring(struct stage *s, const struct file_tensor *t, struct file_tensor *flat, struct err *err)
{
    bool codes = trellis_kept_format(t) != t->format;

    if (codes) {
        flat->format = trellis_kept_format(t);
        flat->bytes = trellis_kept_bytes(t);
    }
    if (t->data || s->device->outlines)
        return true;
    void *numbers = s->joined[s->n_weights] = mem_alloc_aligned(flat->bytes, 64);
    if (!numbers)
        return err_memory(err, "a matrix in the form that is multiplied");
    if (codes)
        trellis_kept_codes(t, numbers);
    else
        read_all(s, t, numbers);
    flat->data = numbers;
    return true;
}

// The device may use what was brought in place; then it lives as long as the weight.
static void forget_brought(struct stage *s, const struct weight *w)
{
    void **numbers = &s->joined[s->n_weights];

    if (w->buffer.host != *numbers) {
        mem_free_aligned(*numbers);
        *numbers = NULL;
    }
}

// Copies the tensor, stores the weight's address in its place, and reports progress.
static bool take_as(struct stage *s, const struct file_tensor *t, struct file_tensor flat,
                    const struct taking *k, struct err *err)
{
    struct weight *w = &s->weights[s->n_weights];
    struct stage_progress *progress = k->progress;

    bool ok = bring(s, t, &flat, err) &&
              take_tensor(&(struct take){ s->device, s->names, s->parts.model->file }, &flat, k->use, w, err);
    forget_brought(s, w);
    if (!ok)
        return err_prefix(err, "tensor %.*s", STR_ARG(t->name));
    s->n_weights++;
    *k->place = w;
    progress->done += trellis_kept_bytes(t);
    if (progress->report && !progress->report(progress->arg, progress->done, progress->total))
        return err_set(err, ERR_CANCELLED, "loading was stopped");
    return true;
}

static bool take_into(struct stage *s, const struct file_tensor *t, enum weight_use use,
                      const struct weight **place, struct stage_progress *progress, struct err *err)
{
    return !t || take_as(s, t, *t, &(struct taking){ use, place, progress }, err);
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

static bool take_layer_tensor(struct stage *s, size_t place, const struct file_tensor *t,
                              struct stage_progress *progress, struct err *err)
{
    const struct model *m = s->parts.model;
    struct taking k = { WEIGHT_PRODUCT, &s->layers[place], progress };

    return take_as(s, t, flattened(t, m->is_vector[place % m->n_places]), &k, err);
}

static bool take_frequencies(struct stage *s, const struct model *m, struct err *err)
{
    for (uint32_t i = 0; i < MODEL_ROPES; i++) {
        struct weight *w = &s->weights[s->n_weights];
        if (!m->frequencies[i])
            continue;
        s->n_weights++;
        s->parts.weights.frequencies[i] = w;
        if (!take_numbers(&(struct take){ s->device, s->names, m->file }, m->frequencies[i],
                          m->config.rope[i].n_dims / 2, "frequencies", w, err))
            return false;
    }
    return true;
}

// The last norm's scale carries the factor of the logits.
static bool take_out_norm(struct stage *s, const struct file_tensor *t, struct stage_progress *progress,
                          struct err *err)
{
    const struct model *m = s->parts.model;
    uint32_t n = m->config.n_cols;

    if (m->factors.head == 1 && t->data)
        return take_into(s, t, WEIGHT_PRODUCT, &s->parts.weights.out_norm, progress, err);
    float *scale = mem_alloc_array(n, sizeof *scale);
    if (!scale)
        return err_memory(err, "a vector");
    if (t->data)
        quant_info(t->format)->decode(t->data, scale, n);
    else if (!s->device->outlines)
        model_tensor_read(t, 0, n, scale); // fp32
    for (uint32_t i = 0; i < n; i++)
        scale[i] *= m->factors.head;
    struct weight *w = &s->weights[s->n_weights];
    s->n_weights++;
    s->parts.weights.out_norm = w;
    bool ok = take_numbers(&(struct take){ s->device, s->names, m->file }, scale, n, "output_norm", w, err);
    mem_free(scale);
    return ok;
}

// Experts that are elsewhere take the norm before them along.
static bool is_here(const struct stage *s, size_t at)
{
    const struct model *m = s->parts.model;
    uint32_t place = (uint32_t)(at % m->n_places), l = s->parts.first + (uint32_t)(at / m->n_places);
    bool of_experts =
        place == offsetof(struct layer_weights, ffn_norm) / sizeof(void *) || mixture_has_place(m, place);

    return s->is_experts ? of_experts : !of_experts || !mixture_is_away(&s->parts, l);
}

static bool take_layers(struct stage *s, struct stage_progress *progress, struct err *err)
{
    const struct model *m = s->parts.model;
    const struct file_tensor **tensors = model_layer(m, s->parts.first);

    for (size_t i = 0; i < (size_t)(s->parts.last - s->parts.first) * m->n_places; i++)
        if (tensors[i] && is_here(s, i) && !take_layer_tensor(s, i, tensors[i], progress, err))
            return false;
    return true;
}

// The tables and the norm that an encoder's rows are made with, in the first stage.
static bool take_encoder_rows(struct stage *s, const struct model *m, struct stage_progress *progress,
                              struct err *err)
{
    struct model_weights *w = &s->parts.weights;
    const struct file_tensor *position = MODEL_TENSOR(m, position_embed), *type = MODEL_TENSOR(m, type_embed),
                             *norm = MODEL_TENSOR(m, embed_norm), *bias = MODEL_TENSOR(m, embed_norm_bias);

    return s->parts.first > 0 || (take_into(s, position, WEIGHT_ROWS, &w->position_embed, progress, err) &&
                                  take_into(s, type, WEIGHT_ROWS, &w->type_embed, progress, err) &&
                                  take_into(s, norm, WEIGHT_PRODUCT, &w->embed_norm, progress, err) &&
                                  take_into(s, bias, WEIGHT_PRODUCT, &w->embed_norm_bias, progress, err));
}

// What the layers' inputs are made of, in the first stage.
static bool take_inputs(struct stage *s, const struct model *m, struct stage_progress *progress,
                        struct err *err)
{
    struct model_weights *w = &s->parts.weights;
    const struct file_tensor *embed = MODEL_TENSOR(m, input_embed), *proj = MODEL_TENSOR(m, input_proj),
                             *norm = MODEL_TENSOR(m, input_norm);
    enum weight_use rows = s->shape.far_rows ? WEIGHT_FAR_ROWS : WEIGHT_ROWS;

    return s->parts.first > 0 || (take_into(s, embed, rows, &w->input_embed, progress, err) &&
                                  take_into(s, proj, WEIGHT_PRODUCT, &w->input_proj, progress, err) &&
                                  take_into(s, norm, WEIGHT_PRODUCT, &w->input_norm, progress, err));
}

// The stage before, on the same device, has the head and may have the embedding.
static bool take_draft(struct stage *s, const struct stage *before, struct stage_progress *progress,
                       struct err *err)
{
    const struct model *m = s->parts.model;
    const struct file_tensor *const *t = &MODEL_TENSOR(m, draft_embed_norm);
    const struct file_tensor *embed = MODEL_TENSOR(m, draft_embed);
    struct model_weights *w = &s->parts.weights;

    w->out_norm = before->parts.weights.out_norm;
    w->draft_embed = before->parts.weights.embed;
    w->draft_head = before->parts.weights.head;
    if (!embed && !w->draft_embed)
        embed = MODEL_TENSOR(m, embed);
    return take_frequencies(s, m, err) && take_layers(s, progress, err) &&
           take_into(s, t[0], WEIGHT_PRODUCT, &w->draft_embed_norm, progress, err) &&
           take_into(s, t[1], WEIGHT_PRODUCT, &w->draft_hidden_norm, progress, err) &&
           take_into(s, t[2], WEIGHT_PRODUCT, &w->draft_from_embed, progress, err) &&
           take_into(s, t[3], WEIGHT_PRODUCT, &w->draft_from_hidden, progress, err) &&
           take_into(s, t[4], WEIGHT_PRODUCT, &w->draft_norm, progress, err) &&
           take_into(s, embed, WEIGHT_ROWS, &w->draft_embed, progress, err) &&
           take_into(s, t[6], WEIGHT_PRODUCT, &w->draft_head, progress, err);
}

static bool take_weights(struct stage *s, const struct stage_plan *plan, struct stage_progress *progress,
                         struct err *err)
{
    const struct model *m = plan->model;
    uint32_t n_layers = s->parts.last - s->parts.first;
    struct model_weights *globals = &s->parts.weights;

    s->weights = mem_alloc_array((size_t)n_layers * m->n_places + N_MODEL_WEIGHTS + 1, sizeof *s->weights);
    s->joined = mem_alloc_array((size_t)n_layers * m->n_places + N_MODEL_WEIGHTS + 1, sizeof *s->joined);
    s->layers = mem_alloc_array((size_t)n_layers * m->n_places, sizeof *s->layers);
    s->names = arena_create((size_t)1 << 26);
    if (!s->weights || !s->joined || !s->layers || !s->names)
        return err_memory(err, "a stage's weights");
    s->parts.layers = s->layers;
    if (s->is_experts)
        return take_layers(s, progress, err);
    if (s->is_draft)
        return take_draft(s, plan->before, progress, err);
    const struct file_tensor *embed = MODEL_TENSOR(m, embed);
    const struct file_tensor *norm = MODEL_TENSOR(m, out_norm);
    const struct file_tensor *head = MODEL_TENSOR(m, head);
    if (!take_frequencies(s, m, err) || !take_inputs(s, m, progress, err) ||
        !take_encoder_rows(s, m, progress, err) ||
        (s->parts.first == 0 && !take_into(s, embed, WEIGHT_ROWS, &globals->embed, progress, err)))
        return false;
    if (!take_layers(s, progress, err))
        return false;
    return s->parts.last != m->config.n_layers || m->arch->is_encoder ||
           (take_out_norm(s, norm, progress, err) &&
            take_into(s, head, WEIGHT_PRODUCT, &globals->head, progress, err));
}

// Whether the layer's pages are window pages.
static bool sees_window(const struct stage *s, uint32_t i)
{
    return s->shape.n_windows > 0 && s->parts.model->layer_configs[s->parts.first + i].window > 0;
}

// A layer's own KV pages, or those of an earlier layer of the stage that it shares K and V with. In a probe
// that layer may be missing: this one gets pages of the same shape.
static bool make_layer_pages(struct stage *s, uint32_t i, struct err *err)
{
    const struct model *m = s->parts.model;
    const struct layer_config *c = &m->layer_configs[s->parts.first + i];
    struct model_page bytes = model_page_bytes(m, c->pages_of, s->shape.k_format, s->shape.v_format);
    struct page_shape shape = { c->n_kv_heads, c->head_dim, s->shape.max_pages, (u16)s->shape.k_format,
                                (u16)s->shape.v_format };
    struct buffer *kv = &s->page_buffers[2 * i], *table = sees_window(s, i) ? &s->window_table : &s->table;
    uint64_t n = sees_window(s, i) ? s->shape.n_windows : s->shape.n_pages;

    bool is_here = c->pages_of >= s->parts.first && c->pages_of <= s->parts.first + i;

    CHECK(is_here || s->is_probe);
    if (c->state_words > 0 || c->ffn_alone)
        return true;
    if (m->arch->is_encoder) {
        s->pages[i] = (struct pages){ NULL, NULL, &s->table, shape };
        return true;
    }
    if (is_here && c->pages_of != s->parts.first + i) {
        s->pages[i] = s->pages[c->pages_of - s->parts.first];
        return true;
    }
    if (!buffer_alloc_local(s->device, n * bytes.k, &kv[0], err) ||
        (bytes.v && !buffer_alloc_local(s->device, n * bytes.v, &kv[1], err)))
        return err_prefix(err, "KV pages for %llu tokens", (unsigned long long)n * PAGE_TOKENS);
    s->pages[i] = (struct pages){ &kv[0], bytes.v ? &kv[1] : NULL, table, shape };
    return true;
}

static bool make_pages(struct stage *s, struct err *err)
{
    uint32_t n_layers = s->parts.last - s->parts.first;

    s->pages = mem_alloc_array(n_layers, sizeof *s->pages);
    s->page_buffers = mem_alloc_array((size_t)n_layers * 2, sizeof *s->page_buffers);
    if (!s->pages || !s->page_buffers)
        return err_memory(err, "a stage's pages");
    s->parts.pages = s->pages;
    for (uint32_t i = 0; i < n_layers; i++)
        if (!make_layer_pages(s, i, err))
            return false;
    return true;
}

static bool make_states(struct stage *s, struct err *err)
{
    const struct model *m = s->parts.model;
    uint32_t n_layers = s->parts.last - s->parts.first;

    s->states = mem_alloc_array(n_layers, sizeof *s->states);
    s->state_buffers = mem_alloc_array(n_layers, sizeof *s->state_buffers);
    if (!s->states || !s->state_buffers)
        return err_memory(err, "a stage's states");
    s->parts.states = s->states;
    for (uint32_t i = 0; i < n_layers; i++) {
        uint32_t n_words = m->layer_configs[s->parts.first + i].state_words;
        if (n_words == 0)
            continue;
        if (!buffer_alloc_local(s->device, (uint64_t)s->shape.n_states * n_words * 4, &s->state_buffers[i],
                                err))
            return err_prefix(err, "%u states of a layer", s->shape.n_states);
        s->states[i] = (struct state_rows){ &s->state_buffers[i], n_words };
    }
    return true;
}

// On the device of the stage before, a stage works on the same block, page table and history. Two devices
// that are CPUs have a block each, since they compute at the same time; but experts elsewhere, which wait.
static void borrow_buffers(struct stage *s, const struct stage *before)
{
    if (!before)
        return;
    s->borrows_tables = before->device == s->device;
    s->borrows_block = s->borrows_tables || (s->is_experts && !before->device->queue && !s->device->queue);
    if (s->borrows_block)
        s->block = before->block;
    if (s->borrows_tables) {
        s->table = before->table;
        s->window_table = before->window_table;
        s->history = before->history;
    }
}

static bool make_tables(struct stage *s, struct err *err)
{
    const struct stage_shape *h = &s->shape;

    return s->borrows_tables || s->is_experts ||
           (buffer_alloc(s->device, (uint64_t)h->n_slots * h->max_pages * 4, &s->table, err) &&
            (!h->n_windows ||
             buffer_alloc(s->device, (uint64_t)h->n_slots * h->max_pages * 4, &s->window_table, err)) &&
            buffer_alloc(s->device, (uint64_t)h->n_slots * h->history_stride * 4, &s->history, err));
}

// Beside a GPU the host's block is pinned memory, to which the GPU copies faster.
static bool make_block(struct stage *s, const struct stage *before, uint64_t bytes, struct err *err)
{
    const struct device_queue *queue = before ? before->device->queue : NULL;

    if (s->borrows_block)
        return true;
    bool pins = !s->device->queue && queue && queue->pin && !s->device->outlines;
    void *at = pins ? queue->pin(before->device, bytes) : NULL;
    if (!at)
        return buffer_alloc(s->device, bytes, &s->block, err);
    memset(at, 0, bytes);
    s->pinned_by = before->device;
    s->block = (struct buffer){ .device = s->device, .host = at, .bytes = bytes };
    return true;
}

// Ranks put them together on the host.
static bool make_logits(struct stage *s, struct err *err)
{
    const struct model *m = s->parts.model;
    uint64_t bytes = (uint64_t)s->shape.max_outputs * m->config.n_vocab * 4;

    return m->n_ranks ? buffer_alloc(s->device, bytes, &s->logits, err)
                      : buffer_alloc_local(s->device, bytes, &s->logits, err);
}

// Steps in flight write disjoint ranges, so that a GPU can write sampled ids to host memory itself: a copy of
// four bytes took 10 us of a GPU's time between two steps (bench/results/2026-11-28-h200-decode.md). Ranks
// exchange what is in the first range.
static bool make_results(struct stage *s, struct err *err)
{
    uint64_t bytes = s->shape.max_outputs * 4ull;

    return s->parts.model->n_ranks ? buffer_alloc(s->device, bytes, &s->results, err)
                                   : buffer_alloc_shared(s->device, DEVICE_FETCHES * bytes, &s->results, err);
}

static bool make_buffers(struct stage *s, const struct stage *before, const struct model_config *c,
                         struct err *err)
{
    const struct stage_shape *h = &s->shape;
    struct device *d = s->device;
    const struct model *m = s->parts.model;
    const struct file_tensor *head = MODEL_TENSOR(m, head);
    bool last = ((s->parts.last == c->n_layers && !s->is_experts) || s->is_draft) && m->rank == 0;

    s->parts.block = &s->block;
    s->parts.history = &s->history;
    s->parts.history_stride = h->history_stride;
    s->parts.logits = &s->logits;
    s->parts.results = &s->results;
    s->parts.mask_bias = &s->mask_bias;
    s->parts.inputs = c->n_inputs ? &s->inputs : NULL;
    s->parts.sums = &s->sums;
    s->parts.head_part = &s->head_part;
    return make_tables(s, err) &&
           (!c->n_inputs ||
            buffer_alloc_local(d, (uint64_t)h->max_rows * c->n_inputs * 4, &s->inputs, err)) &&
           make_block(s, before, (uint64_t)h->max_rows * c->n_cols * 4, err) &&
           buffer_alloc(d, step_bytes(h->max_rows, h->max_outputs), &s->step, err) &&
           (m->n_ranks == 0 || (buffer_alloc(d, (uint64_t)h->max_rows * c->n_cols * 4, &s->sums, err) &&
                                buffer_alloc(d, h->max_outputs * head->dims[0] * 4, &s->head_part, err))) &&
           (!last || make_results(s, err)) &&
           (!last || m->arch->is_encoder ||
            (make_logits(s, err) &&
             (s->is_draft ||
              buffer_alloc(d, (uint64_t)h->max_outputs * sample_mask_bias_words(c->n_vocab) * 4,
                           &s->mask_bias, err))));
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

    *s = (struct stage){ .device = plan->device,
                         .shape = *shape,
                         .is_experts = plan->is_experts,
                         .is_draft = plan->is_draft,
                         .is_probe = plan->is_probe };
    s->parts = (struct model_stage){ .model = m,
                                     .first = plan->layers.first,
                                     .last = plan->layers.last,
                                     .pool = plan->pool,
                                     .n_away = shape->n_away };
    for (uint32_t i = 0; i < N_BUCKETS; i++) {
        uint32_t rows = i < N_BUCKETS - 1 ? BUCKET_ROWS[i] : shape->max_rows;
        s->buckets[i] =
            (struct bucket){ at_most(rows, shape->max_rows), at_most(rows, shape->max_outputs), NULL };
    }
    borrow_buffers(s, plan->before);
    bool ok = make_buffers(s, plan->before, &m->config, err) &&
              (s->is_experts || (make_pages(s, err) && make_states(s, err))) &&
              take_weights(s, plan, progress, err);
    thread_pool_destroy(s->readers);
    s->readers = NULL;
    if (ok && adapters_attach(s, plan->adapters, err) && away_create(s, plan, progress, err))
        return true;
    stage_release(s);
    return false;
}

void stage_release(struct stage *s)
{
    away_free(s->away);
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
    for (uint32_t i = 0; s->state_buffers && i < s->parts.last - s->parts.first; i++)
        buffer_release(&s->state_buffers[i]);
    if (s->pinned_by)
        s->pinned_by->queue->unpin(s->pinned_by, s->block.host);
    if (s->borrows_block || s->pinned_by)
        s->block = (struct buffer){ 0 };
    if (s->borrows_tables)
        s->table = s->window_table = s->history = (struct buffer){ 0 };
    struct buffer *buffers[] = { &s->table,  &s->window_table, &s->history,   &s->block,
                                 &s->logits, &s->results,      &s->mask_bias, &s->step,
                                 &s->inputs, &s->sums,         &s->head_part };
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        buffer_release(buffers[i]);
    adapters_detach(s);
    arena_destroy(s->names);
    mem_free(s->weights);
    mem_free(s->layers);
    mem_free(s->pages);
    mem_free(s->page_buffers);
    mem_free(s->states);
    mem_free(s->state_buffers);
    *s = (struct stage){ 0 };
}

uint32_t stage_results_at(const struct stage *s, uint32_t fetch)
{
    return s->parts.model->n_ranks ? 0 : fetch * s->shape.max_outputs;
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

    if (s->away && !stage_bucket(&s->away->stage, n_rows, n_outputs, err))
        return NULL;
    for (uint32_t i = 0; i < s->n_others; i++)
        if (!stage_bucket(&s->others[i], n_rows, n_outputs, err))
            return NULL;
    if (b->tape)
        return b;
    struct tape *t =
        tape_create(s->device, (struct tape_limits){ b->max_rows, b->max_outputs, s->shape.exact,
                                                     s->shape.parts, s->shape.invariant, s->shape.gemm });
    if (!t) {
        err_memory(err, "a tape");
        return NULL;
    }
    tape_exchange_on_device(t, s->exchange);
    if (s->is_experts)
        mixture_record(t, &s->parts);
    else if (s->is_draft)
        draft_layer_record(t, &s->parts);
    else
        model_record(t, &s->parts);
    if (!adapters_are_recorded(s, t, err) || !tape_seal(t, err)) {
        tape_destroy(t);
        return NULL;
    }
    b->tape = t;
    return b;
}

bool stage_play(struct stage *s, const struct step *step, struct err *err)
{
    struct bucket *b = stage_bucket(s, step->n_rows, step->n_outputs, err);

    return b && stage_step_write(s, step, err) &&
           (s->away ? away_play(s, step, err) : stage_play_segment(s, b, 0, err));
}

bool stage_step_write(struct stage *s, const struct step *step, struct err *err)
{
    return buffer_write(&s->step, 0, step, step_bytes(step->max_rows, step->max_outputs), err);
}

bool stage_play_segment(struct stage *s, const struct bucket *b, uint32_t segment, struct err *err)
{
    return s->watch.before ? tape_play_watched(b->tape, &s->step, segment, &s->watch, err)
                           : tape_play_segment(b->tape, &s->step, segment, err);
}

void stage_watch(struct stage *s, struct tape_watch watch)
{
    s->watch = watch;
    if (s->away)
        s->away->stage.watch = watch;
}

bool stage_table_write(struct stage *s, const struct kv *kv, uint32_t slot, uint32_t from, struct err *err)
{
    const uint32_t *pages = kv->table + (uint64_t)slot * kv->max_pages + from;

    return stage_pages_write(s, slot, (struct layer_range){ from, kv->n_taken[slot] }, pages, err);
}

static bool write_entries(struct stage *s, bool windows, uint32_t slot, struct layer_range entries,
                          const uint32_t *pages, struct err *err)
{
    struct buffer *table = windows ? &s->window_table : &s->table;
    uint64_t at = (uint64_t)slot * s->shape.max_pages + entries.first;

    for (uint32_t i = 0; i < s->n_others; i++)
        if (!write_entries(&s->others[i], windows, slot, entries, pages, err))
            return false;
    return entries.first >= entries.last || s->borrows_tables ||
           buffer_write(table, at * 4, pages, (uint64_t)(entries.last - entries.first) * 4, err);
}

bool stage_pages_write(struct stage *s, uint32_t slot, struct layer_range entries, const uint32_t *pages,
                       struct err *err)
{
    return write_entries(s, false, slot, entries, pages, err);
}

struct layer_range stage_held_windows(const struct kv *kv, uint32_t slot, uint32_t from)
{
    const struct kv_window_slot *held = &kv->window_slots[slot];

    return (struct layer_range){ from > held->from ? from : held->from, held->to };
}

bool stage_window_pages_write(struct stage *s, uint32_t slot, struct layer_range entries,
                              const uint32_t *pages, struct err *err)
{
    return write_entries(s, true, slot, entries, pages, err);
}

bool stage_window_table_write(struct stage *s, const struct kv *kv, uint32_t slot, uint32_t from,
                              struct err *err)
{
    if (!kv->window)
        return true;
    struct layer_range held = stage_held_windows(kv, slot, from);
    return stage_window_pages_write(s, slot, held,
                                    kv->window_table + (uint64_t)slot * kv->max_pages + held.first, err);
}

bool stage_history_write(struct stage *s, uint32_t slot, const uint32_t *tokens, uint32_t n, struct err *err)
{
    for (uint32_t i = 0; i < s->n_others; i++)
        if (!stage_history_write(&s->others[i], slot, tokens, n, err))
            return false;
    return n == 0 || s->borrows_tables ||
           buffer_write(&s->history, (uint64_t)slot * s->shape.history_stride * 4, tokens, (uint64_t)n * 4,
                        err);
}

// Of the layers with a window, or the others; there may be no V.
static uint32_t pieces_of(struct stage *s, bool window, uint32_t page, unsigned char **at,
                          struct device_piece *pieces)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < 2 * (s->parts.last - s->parts.first); i++) {
        struct buffer *b = &s->page_buffers[i];
        uint64_t bytes = b->bytes / (window ? s->shape.n_windows : s->shape.n_pages);
        if (bytes == 0 || sees_window(s, i / 2) != window)
            continue;
        pieces[n++] = (struct device_piece){ b, page * bytes, bytes, *at };
        *at += bytes;
    }
    return n;
}

static bool move_pages(struct stage *s, bool window, uint32_t page, unsigned char **at, bool to_device,
                       struct err *err)
{
    struct device_piece *pieces = mem_alloc_array(2ull * (s->parts.last - s->parts.first), sizeof *pieces);
    uint32_t n = pieces ? pieces_of(s, window, page, at, pieces) : 0;
    bool ok = pieces ? to_device || device_gather(s->device, pieces, n, err) : err_memory(err, "a page");

    for (uint32_t i = 0; i < n && to_device && ok; i++)
        ok = buffer_write(pieces[i].buffer, pieces[i].offset, pieces[i].host, pieces[i].bytes, err);
    mem_free(pieces);
    for (uint32_t i = 0; i < s->n_others && ok; i++)
        ok = move_pages(&s->others[i], window, page, at, to_device, err);
    return ok;
}

bool stage_page_move(struct stage *s, uint32_t page, unsigned char **at, bool to_device, struct err *err)
{
    return move_pages(s, false, page, at, to_device, err);
}

uint32_t stage_page_pieces(struct stage *s, uint32_t page, const unsigned char **at,
                           struct device_piece *pieces)
{
    unsigned char *numbers = (unsigned char *)(uintptr_t)*at;

    CHECK(s->n_others == 0);
    uint32_t n = pieces_of(s, false, page, &numbers, pieces);
    *at = numbers;
    return n;
}

bool stage_window_move(struct stage *s, uint32_t page, unsigned char **at, bool to_device, struct err *err)
{
    return move_pages(s, true, page, at, to_device, err);
}

bool stage_state_move(struct stage *s, uint32_t row, unsigned char **at, bool to_device, struct err *err)
{
    for (uint32_t i = 0; i < s->parts.last - s->parts.first; i++) {
        uint64_t bytes = s->states[i].n_words * 4ull, offset = row * bytes;
        struct buffer *b = &s->state_buffers[i];
        if (bytes > 0 &&
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
    for (uint32_t i = 0; i < s->n_others; i++)
        bytes += stage_page_bytes(&s->others[i]);
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
