// place.c - see place.h.
#include "engine/stage/place.h"
#include "base/err.h"
#include "base/log.h"
#include "engine/stage/away.h"
#include "engine/stage/devices.h"
#include "models/binding/layer_config.h"
#include "models/mixture.h"
#include "models/trellis_tensor.h"

enum { LEAST_KEPT = 4, STATE_TOKENS = 64 }; // states to keep at least; tokens between two of them at least

static bool read_borders(struct placement *p, const char *text, uint32_t n_layers, struct err *err)
{
    struct str rest = str_from(text);
    uint32_t first = 0;

    while (rest.n > 0) {
        size_t comma = str_find(rest, STR(","));
        size_t end = comma == SIZE_MAX ? rest.n : comma;
        uint64_t at;
        if (!str_to_u64(str_from_to(rest, 0, end), &at) || at <= first || at >= n_layers ||
            p->n + 2 > MAX_STAGES)
            return err_set(err, ERR_INPUT,
                           "%s \"%s\": want up to %d rising layer numbers from 1 to %u, as in 4,8",
                           err_option("stages"), text, MAX_STAGES - 1, n_layers - 1);
        p->layers[p->n++] = (struct layer_range){ first, (uint32_t)at };
        first = (uint32_t)at;
        rest = str_from_to(rest, end + (comma != SIZE_MAX), rest.n);
    }
    p->layers[p->n++] = (struct layer_range){ first, n_layers };
    return true;
}

bool place_stages(struct placement *p, const char *borders, uint32_t n_layers, uint32_t n_devices,
                  struct err *err)
{
    *p = (struct placement){ 0 };
    if (!read_borders(p, borders ? borders : "", n_layers, err))
        return false;
    if (n_devices > 1 && p->n != n_devices)
        return err_set(err, ERR_INPUT,
                       "%s \"%s\" are %u and %u devices are named; want a stage for each device, or one "
                       "device for all",
                       err_option("stages"), borders ? borders : "", p->n, n_devices);
    for (uint32_t i = 0; i < p->n && n_devices > 1; i++)
        p->device[i] = i;
    return true;
}

bool place_border_fits(const struct model *m, uint32_t layer)
{
    if (layer > 0 && m->config.n_inputs)
        return false;
    for (uint32_t l = layer; l < m->config.n_layers; l++)
        if (m->layer_configs[l].pages_of < layer)
            return false;
    return true;
}

bool place_borders_fit(const struct placement *p, const struct model *m, struct err *err)
{
    for (uint32_t i = 1; i < p->n; i++) {
        if (m->config.n_inputs)
            return err_set(
                err, ERR_UNSUPPORTED,
                "%s: all layers read what the first makes of a token; ingot runs such a model in one "
                "stage, on one device",
                model_file_path(m->file));
        for (uint32_t l = p->layers[i].first; l < m->config.n_layers; l++)
            if (m->layer_configs[l].pages_of < p->layers[i].first)
                return err_set(
                    err, ERR_UNSUPPORTED,
                    "%s: layer %u reads K and V of layer %u, and a stage begins between them, at %u; "
                    "use one device, or %s with other borders",
                    model_file_path(m->file), l, m->layer_configs[l].pages_of, p->layers[i].first,
                    err_option("stages"));
    }
    return true;
}

static uint64_t tensor_bytes(const struct file_tensor *t)
{
    return t ? trellis_kept_bytes(t) : 0;
}

static uint64_t copied_bytes(const struct file_tensor *t)
{
    return t && !t->data ? trellis_kept_bytes(t) : 0;
}

// Of the layer that drafts, beside the last layers; its embedding may be the first stage's.
static uint64_t draft_weights(const struct model *m, uint64_t (*bytes_of)(const struct file_tensor *t))
{
    const size_t first = MODEL_PLACE(draft_embed_norm);
    uint64_t bytes = 0;

    for (size_t i = first; i <= MODEL_PLACE(draft_head); i++)
        bytes += bytes_of(m->tensors[i]);
    for (uint32_t i = 0; i < m->n_places; i++)
        bytes += bytes_of(model_layer(m, m->config.n_layers)[i]);
    return bytes;
}

// Of each tensor `bytes`.
static uint64_t range_weights(const struct model *m, struct layer_range layers,
                              uint64_t (*bytes_of)(const struct file_tensor *t))
{
    uint64_t bytes = 0;

    if (layers.first == 0)
        bytes += bytes_of(MODEL_TENSOR(m, embed)) + bytes_of(MODEL_TENSOR(m, input_embed)) +
                 bytes_of(MODEL_TENSOR(m, input_proj));
    if (layers.last == m->config.n_layers)
        bytes += bytes_of(MODEL_TENSOR(m, out_norm)) + bytes_of(MODEL_TENSOR(m, head));
    for (uint32_t l = layers.first; l < layers.last; l++)
        for (uint32_t i = 0; i < m->n_places; i++)
            bytes += bytes_of(model_layer(m, l)[i]);
    return bytes;
}

static uint64_t experts_bytes(const struct model *m, struct layer_range layers,
                              uint64_t (*bytes_of)(const struct file_tensor *t))
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < m->n_places; i++)
        for (uint32_t l = layers.first; mixture_has_place(m, i) && l < layers.last; l++)
            bytes += bytes_of(model_layer(m, l)[i]);
    return bytes;
}

struct place_memory place_experts_memory(const struct model *m, const struct stage_shape *shape,
                                         struct layer_range layers)
{
    layers = away_layers(m, shape->n_away, layers);
    if (shape->n_away == 0 || layers.first == layers.last)
        return (struct place_memory){ 0 };
    uint64_t row = 2ull * m->config.n_cols + (m->arch->scratch_cols ? m->arch->scratch_cols(m) : 0);
    return (struct place_memory){ .weights = experts_bytes(m, layers, tensor_bytes),
                                  .scratch = 4 * shape->max_rows * row,
                                  .copied = experts_bytes(m, layers, copied_bytes) };
}

struct place_memory place_memory(const struct model *m, const struct stage_shape *shape,
                                 const struct device *d)
{
    struct place_memory need = place_range_memory(m, shape, (struct layer_range){ 0, m->config.n_layers });

    if (d && devices_has_own_memory(d))
        return need;
    need.weights = m->weight_bytes + (shape->drafts ? m->draft_bytes : 0) + shape->eyes_weights +
                   shape->adapter_bytes - need.far -
                   place_experts_memory(m, shape, (struct layer_range){ 0, m->config.n_layers }).weights;
    return need;
}

// Pages and window pages.
static uint64_t pages_bytes(const struct model *m, const struct stage_shape *shape, struct layer_range layers)
{
    uint64_t all = model_pages_bytes(m, layers.first, layers.last, shape->k_format, shape->v_format),
             window =
                 layer_config_window_bytes(m, layers.first, layers.last, shape->k_format, shape->v_format);
    uint64_t n_windows = shape->n_windows ? shape->n_windows : shape->n_pages;

    return shape->n_pages * (all - window) + n_windows * window;
}

// Columns of a row's tensors in the layer that has most.
static uint64_t layer_scratch(const struct model *m, struct layer_range layers)
{
    uint64_t most = 0;

    for (uint32_t l = layers.first; l < layers.last; l++) {
        const struct layer_config *c = &m->layer_configs[l];
        uint64_t n = 3ull * c->n_ffn + 4ull * (c->n_heads + c->n_kv_heads) * c->head_dim;
        most = n > most ? n : most;
    }
    return most;
}

// Columns of what a row that has logits takes: the first of several ranks puts them together.
static uint64_t logits_cols(const struct model *m)
{
    const struct file_tensor *head = MODEL_TENSOR(m, head);

    return (m->rank == 0 ? 4ull * m->config.n_vocab : 0) + (m->n_ranks ? head->dims[0] : 0);
}

struct place_memory place_range_memory(const struct model *m, const struct stage_shape *shape,
                                       struct layer_range layers)
{
    const struct model_config *c = &m->config;
    uint64_t row = 8ull * c->n_cols + (m->n_ranks ? c->n_cols : 0) + 3ull * c->n_inputs +
                   layer_scratch(m, layers) + 3ull * shape->adapter_ranks;
    bool has_head = layers.last == c->n_layers && !m->arch->is_encoder, drafts = has_head && shape->drafts;
    uint64_t slots = shape->overlaps && layers.first > 0 ? 2ull * shape->max_rows * c->n_cols * 4 : 0;
    uint64_t far = shape->far_rows && layers.first == 0 ? tensor_bytes(MODEL_TENSOR(m, input_embed)) : 0;
    uint32_t last = layers.last + drafts;

    if (m->arch->scratch_cols)
        row += m->arch->scratch_cols(m);
    return (struct place_memory){
        .weights = range_weights(m, layers, tensor_bytes) + (drafts ? draft_weights(m, tensor_bytes) : 0) -
                   place_experts_memory(m, shape, layers).weights - far +
                   (layers.first == 0 ? shape->eyes_weights : 0) +
                   shape->adapter_bytes * (layers.last - layers.first) / c->n_layers,
        .pages = pages_bytes(m, shape, (struct layer_range){ layers.first, last }) +
                 shape->n_states * model_state_words(m, layers.first, layers.last) * sizeof(float),
        .scratch = (drafts + 1ull) * 4 *
                       (shape->max_rows * row + (has_head ? shape->max_outputs * logits_cols(m) : 0)) +
                   slots + // of activations from the stage before (engine/flight/pipeline.h)
                   (layers.first == 0 ? shape->eyes_scratch : 0),
        .tower_weights = layers.first == 0 ? shape->eyes_weights : 0,
        .tower_scratch = layers.first == 0 ? shape->eyes_scratch : 0,
        .copied = range_weights(m, layers, copied_bytes) + (drafts ? draft_weights(m, copied_bytes) : 0) -
                  place_experts_memory(m, shape, layers).copied +
                  (layers.first == 0 ? shape->eyes_weights : 0) +
                  shape->adapter_bytes * (layers.last - layers.first) / c->n_layers,
        .far = far,
    };
}

uint32_t place_states(const struct model *m, uint32_t n_slots, uint32_t n_spare, uint32_t n_pages)
{
    uint32_t n_layers = m->config.n_layers, most = n_pages / (STATE_TOKENS / PAGE_TOKENS) + LEAST_KEPT;
    uint64_t state = model_state_words(m, 0, n_layers) * sizeof(float),
             pages = n_pages * model_pages_bytes(m, 0, n_layers, KV_F16, KV_F16);

    if (state == 0)
        return 0;
    uint64_t n = pages / 4 / state + LEAST_KEPT;
    return n_slots + n_spare + (uint32_t)(n < most ? n : most);
}

uint32_t place_windows(const struct model *m, const struct stage_shape *shape, bool kept)
{
    uint64_t seen = layer_config_window(m) / PAGE_TOKENS + (layer_config_window(m) % PAGE_TOKENS != 0);
    uint64_t rows = shape->max_rows / PAGE_TOKENS + 1;
    // what a slot sees or writes may begin and end within a page
    uint64_t n = shape->n_slots * (seen + 2 + (kept ? seen : 1)) + rows;

    return layer_config_window(m) == 0 ? 0 : n < shape->n_pages ? (uint32_t)n : shape->n_pages;
}

uint64_t place_room(struct device *d, float share)
{
    struct device_info info = { 0 };

    d->ops->info(d, &info);
    uint64_t room = d->queue ? info.free_bytes : info.memory_bytes;
    return share > 0 ? (uint64_t)((double)room * (double)share) : room;
}

// True where the device has room for all but the weights: they stay in the file.
static bool use_file(const struct place_memory *need, struct device *d, uint64_t room)
{
    const double gib = 1 << 30;

    if (!d->can_use_file || need->copied + need->pages + need->scratch > room)
        return false;
    d->uses_file = true;
    log_line(LOG_WARN, "place",
             "weights of %.2f GiB do not fit into the %.2f GiB of %s: they are read from the file again and "
             "again, slowly",
             (double)need->weights / gib, (double)room / gib, d->name);
    return true;
}

bool place_check(const struct place_memory *need, struct device *d, float share, struct err *err)
{
    const double gib = 1 << 30;
    struct device_info info = { 0 };
    uint64_t total = need->weights + need->pages + need->scratch;

    d->ops->info(d, &info);
    uint64_t room = place_room(d, share);
    char limit[64] = "";
    log_line(LOG_INFO, "place",
             "%s: weights %.2f GiB, pages %.2f GiB, scratch %.2f GiB; %.2f GiB free of %.2f", d->name,
             (double)need->weights / gib, (double)need->pages / gib, (double)need->scratch / gib,
             (double)info.free_bytes / gib, (double)info.memory_bytes / gib);
    if (total <= room || use_file(need, d, room))
        return true;
    if (share > 0)
        snprintf(limit, sizeof limit, ", of which the limits leave %.2f", (double)room / gib);
    return err_set(
        err, ERR_MEMORY,
        "needs %.2f GiB (weights %.2f, KV pages %.2f, scratch %.2f) and %s has %.2f free of %.2f%s",
        (double)total / gib, (double)need->weights / gib, (double)need->pages / gib,
        (double)need->scratch / gib, d->name, (double)info.free_bytes / gib, (double)info.memory_bytes / gib,
        limit);
}
