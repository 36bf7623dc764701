// adapters.c - see adapters.h.
#include "engine/stage/adapters.h"
#include <string.h>
#include "base/mem.h"
#include "engine/stage/stage.h"
#include "models/split/model_part.h"
#include "ops/lora/lora.h"

static const char DEFAULT_NAME[] = "adapter";

struct weight_place {
    bool per_layer;
    uint32_t layer, place;
};

// ---- an engine's

// The last part of the path, without its ending: the name of a folder is that of the adapter.
static void name_from_path(const char *path, char name[64])
{
    struct str rest = str_from(path);

    while (rest.n > 1 && rest.at[rest.n - 1] == '/')
        rest.n--;
    if (str_ends(rest, STR("/adapter_model.safetensors")))
        rest.n -= strlen("/adapter_model.safetensors");
    else if (str_ends(rest, STR(".gguf")))
        rest.n -= strlen(".gguf");
    size_t slash = str_find_last(rest, '/');
    rest = slash == SIZE_MAX ? rest : str_from_to(rest, slash + 1, rest.n);
    snprintf(name, 64, "%.*s", STR_ARG(rest.n ? rest : str_from(DEFAULT_NAME)));
}

// A name stands behind a colon in a model's name.
static bool name_is_good(const struct adapters *s, uint32_t i, struct err *err)
{
    const char *name = s->at[i].name;

    for (const char *c = name; *c; c++)
        if (*c <= ' ' || *c == ':' || *c == 0x7f)
            return err_set(err, ERR_INPUT,
                           "adapter %u: the name '%s' has a blank or a colon; name it otherwise", i, name);
    for (uint32_t k = 0; k < i; k++)
        if (strcmp(s->at[k].name, name) == 0)
            return err_set(err, ERR_INPUT, "two adapters are called '%s'; name one of them otherwise", name);
    return true;
}

static bool open_one(struct adapters *s, const struct model *m, const struct ingot_adapter *from,
                     struct err *err)
{
    struct named_adapter *to = &s->at[s->n];

    if (!from->path || !*from->path)
        return err_set(err, ERR_INPUT, "adapter %u has no path", s->n);
    if (!(from->scale >= -100 && from->scale <= 100))
        return err_set(err, ERR_INPUT, "%s: the scale is %g; want -100 to 100", from->path,
                       (double)from->scale);
    if (from->name)
        snprintf(to->name, sizeof to->name, "%s", from->name);
    else
        name_from_path(from->path, to->name);
    to->scale = from->scale;
    if (!*to->name || !name_is_good(s, s->n, err) || !adapter_open(&to->inner, m, from->path, err))
        return *to->name ? false : err_set(err, ERR_INPUT, "%s: the name is empty", from->path);
    s->n++;
    return true;
}

bool adapters_open(struct adapters *s, const struct model *m, const struct ingot_engine_options *options,
                   struct err *err)
{
    *s = (struct adapters){ 0 };
    if (options->n_adapters == 0)
        return true;
    if (options->n_adapters > MOST_ADAPTERS || !options->adapters)
        return err_set(err, ERR_INPUT, "%zu adapters; want at most %d", options->n_adapters, MOST_ADAPTERS);
    s->at = mem_alloc_array(options->n_adapters, sizeof *s->at);
    if (!s->at)
        return err_memory(err, "the adapters");
    for (size_t i = 0; i < options->n_adapters; i++)
        if (!open_one(s, m, &options->adapters[i], err))
            return false;
    return true;
}

void adapters_close(struct adapters *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        adapter_close(&s->at[i].inner);
    mem_free(s->at);
    *s = (struct adapters){ 0 };
}

// What a part of the model has of the matrix at a place; else all of it.
static struct part_window window_at(const struct model *m, struct weight_place at, uint32_t n_rows,
                                    uint32_t n_cols)
{
    struct part_window w;

    return model_part_window(m, at.per_layer ? model_layer(m, at.layer)[at.place] : m->tensors[at.place], &w)
               ? w
               : (struct part_window){ 0, n_rows, 0, n_cols };
}

uint64_t adapters_bytes(const struct adapters *s, const struct model *m)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < s->n; i++)
        for (uint32_t k = 0; k < s->at[i].inner.n_parts; k++) {
            const struct adapter *a = &s->at[i].inner;
            const struct adapter_part *p = &a->parts[k];
            struct weight_place at = { p->key->per_layer, p->layer, p->key->place };
            struct part_window w = window_at(m, at, adapter_rows(a, p), adapter_cols(a, p));
            n += (uint64_t)p->rank * (w.n_rows + w.n_cols) * sizeof(float);
        }
    return n;
}

static uint32_t ranks_at(const struct adapters *s, bool per_layer, uint32_t layer, uint32_t place)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->n; i++) {
        const struct adapter_part *p = adapter_find(&s->at[i].inner, per_layer, layer, place);
        n += p ? p->rank : 0;
    }
    return n;
}

uint32_t adapters_most_ranks(const struct adapters *s, const struct model *m)
{
    uint32_t most = 0;

    for (uint32_t place = 0; place < m->n_places && s->n; place++) {
        uint32_t n = ranks_at(s, true, m->config.n_layers / 2, place);
        most = n > most ? n : most;
    }
    return most;
}

// ---- a request's

static uint32_t find_name(const struct adapters *s, const char *name)
{
    uint32_t i = 0;

    while (i < s->n && strcmp(s->at[i].name, name) != 0)
        i++;
    return i;
}

static bool unknown_name(const struct adapters *s, const char *name, struct err *err)
{
    char known[256] = "";

    for (uint32_t i = 0; i < s->n; i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? " " : "", s->at[i].name);
    return err_set(err, ERR_INPUT, "no adapter is called '%.64s'; the engine has: %s", name,
                   s->n ? known : "none");
}

bool adapters_take(const struct adapters *s, const struct ingot_request_options *o, float **scales,
                   struct err *err)
{
    *scales = NULL;
    if (o->n_adapters == 0)
        return true;
    if (o->n_adapters > MOST_ADAPTERS || !o->adapters)
        return err_set(err, ERR_INPUT, "%zu adapters of a request; want at most %d", o->n_adapters,
                       MOST_ADAPTERS);
    *scales = mem_alloc_array(s->n + 1, sizeof **scales);
    if (!*scales)
        return err_memory(err, "a request's adapters");
    for (size_t i = 0; i < o->n_adapters; i++) {
        const struct ingot_adapter_use *use = &o->adapters[i];
        uint32_t at = use->name ? find_name(s, use->name) : s->n;
        if (at == s->n)
            return unknown_name(s, use->name ? use->name : "", err);
        if (!(use->scale >= -100 && use->scale <= 100))
            return err_set(err, ERR_INPUT, "the scale of adapter '%s' is %g; want -100 to 100", use->name,
                           (double)use->scale);
        (*scales)[at] += use->scale * s->at[at].scale;
    }
    return true;
}

bool adapters_key(const struct adapters *s, const float *scales, struct sha256 *key, struct err *err)
{
    static const char name[] = "ingot adapters 1";
    struct sha256_stream *sum = NULL;

    *key = (struct sha256){ { 0 } };

    for (uint32_t i = 0; i < s->n && scales; i++) {
        if (scales[i] == 0)
            continue;
        if (!sum) {
            if (!(sum = sha256_open()))
                return err_memory(err, "a request's adapters");
            sha256_add(sum, name, sizeof name);
        }
        sha256_add(sum, s->at[i].inner.digest.at, sizeof s->at[i].inner.digest.at);
        sha256_add(sum, &scales[i], sizeof scales[i]);
    }
    if (sum)
        *key = sha256_take(sum);
    sha256_close(sum);
    return true;
}

// ---- a stage's

static bool make_matrix(struct stage *s, struct weight *w, uint32_t n_rows, uint32_t n_cols, const char *name,
                        struct err *err)
{
    *w = (struct weight){ .bytes = (uint64_t)n_rows * n_cols * sizeof(float),
                          .n_rows = n_rows,
                          .n_cols = n_cols,
                          .format = QUANT_F32,
                          .name = name };
    return buffer_alloc(s->device, w->bytes, &w->buffer, err);
}

// Columns [first, first + n) of n_rows rows, in front.
static void keep_columns(float *numbers, uint32_t n_rows, uint32_t n_cols, uint32_t first, uint32_t n)
{
    for (uint64_t i = 0; i < n_rows && n < n_cols; i++)
        memmove(numbers + i * n, numbers + i * n_cols + first, n * sizeof *numbers);
}

// Copies one adapter's ranks behind those before it: of a part of the model, what belongs to its columns and
// rows.
static bool copy_part(struct lora_weight *to, const struct adapter *a, const struct adapter_part *part,
                      const struct part_window *w, uint32_t first, struct err *err)
{
    uint32_t n_cols = adapter_cols(a, part), n_rows = adapter_rows(a, part);
    uint64_t down_bytes = (uint64_t)part->rank * w->n_cols * sizeof(float),
             up_bytes = (uint64_t)part->rank * w->n_rows * sizeof(float);
    float *down = mem_alloc_array((size_t)part->rank * n_cols, sizeof *down),
          *up = mem_alloc_array((size_t)part->rank * n_rows, sizeof *up);
    bool ok = down && up ? adapter_read(a, part, down, up, err) : err_memory(err, "an adapter's matrices");

    if (ok) {
        keep_columns(down, part->rank, n_cols, w->first_col, w->n_cols);
        keep_columns(up, part->rank, n_rows, w->first_row, w->n_rows);
    }
    ok = ok &&
         buffer_write(&to->a.buffer, (uint64_t)first * to->a.n_cols * sizeof(float), down, down_bytes, err) &&
         buffer_write(&to->b.buffer, (uint64_t)first * to->b.n_cols * sizeof(float), up, up_bytes, err);
    mem_free(down);
    mem_free(up);
    return ok;
}

static bool fill(const struct stage *s, struct lora_weight *to, const struct adapters *all,
                 struct weight_place at, struct err *err)
{
    struct part_window w = window_at(s->parts.model, at, to->b.n_cols, to->a.n_cols);
    uint32_t *owners = mem_alloc_array(to->n_ranks, sizeof *owners), first = 0;
    bool ok = owners || err_memory(err, "an adapter's ranks");

    for (uint32_t i = 0; i < all->n && ok; i++) {
        const struct adapter *a = &all->at[i].inner;
        const struct adapter_part *part = adapter_find(a, at.per_layer, at.layer, at.place);
        if (!part)
            continue;
        ok = copy_part(to, a, part, &w, first, err);
        for (uint32_t j = 0; j < part->rank; j++)
            owners[first++] = i;
    }
    ok = ok && buffer_write(&to->owners, 0, owners, to->n_ranks * sizeof *owners, err);
    mem_free(owners);
    return ok;
}

// *place: the weight there, or NULL.
static bool attach(struct stage *s, const struct adapters *all, struct weight_place at,
                   const struct weight **place, struct err *err)
{
    uint32_t n_ranks = *place ? ranks_at(all, at.per_layer, at.layer, at.place) : 0;
    struct weight *w = (struct weight *)(uintptr_t)*place; // the stage's own

    if (n_ranks == 0)
        return true;
    struct lora_weight *to = &s->loras[s->n_loras++];
    *to = (struct lora_weight){ .scales = &s->scales, .n_ranks = n_ranks, .n_adapters = all->n };
    w->lora = to;
    return make_matrix(s, &to->a, n_ranks, w->n_cols, w->name, err) &&
           make_matrix(s, &to->b, n_ranks, w->n_rows, w->name, err) &&
           buffer_alloc(s->device, n_ranks * sizeof(uint32_t), &to->owners, err) &&
           (s->device->outlines || fill(s, to, all, at, err));
}

bool adapters_attach(struct stage *s, const struct adapters *all, struct err *err)
{
    const struct model *m = s->parts.model;
    uint32_t n_layers = s->parts.last - s->parts.first, n_adapters = all ? all->n : 0;

    if (n_adapters == 0)
        return true;
    s->n_adapters = n_adapters;
    s->loras = mem_alloc_array((size_t)n_layers * m->n_places + 1, sizeof *s->loras);
    if (!s->loras)
        return err_memory(err, "a stage's adapters");
    if (!buffer_alloc(s->device, (uint64_t)s->shape.n_slots * n_adapters * sizeof(float), &s->scales, err))
        return false;
    for (uint32_t i = 0; i < n_layers * m->n_places; i++) {
        struct weight_place at = { true, s->parts.first + i / m->n_places, i % m->n_places };
        if (!attach(s, all, at, &s->layers[i], err))
            return err_prefix(err, "adapters of layer %u", at.layer);
    }
    struct weight_place head = { false, 0, MODEL_PLACE(head) };
    return attach(s, all, head, &s->parts.weights.head, err) || err_prefix(err, "adapters of the head");
}

void adapters_detach(struct stage *s)
{
    for (uint32_t i = 0; i < s->n_loras; i++) {
        weight_release(&s->loras[i].a);
        weight_release(&s->loras[i].b);
        buffer_release(&s->loras[i].owners);
    }
    mem_free(s->loras);
    buffer_release(&s->scales);
}

static bool is_recorded(const struct tape *t, const struct lora_weight *w)
{
    for (uint32_t i = 0; i < tape_n_commands(t); i++) {
        const struct command *c = tape_command(t, i);
        for (uint32_t k = 0; k < c->n_operands; k++)
            if (c->operands[k].weight == &w->a)
                return true;
    }
    return false;
}

bool adapters_are_recorded(const struct stage *s, const struct tape *t, struct err *err)
{
    for (uint32_t i = 0; i < s->n_loras; i++)
        if (!is_recorded(t, &s->loras[i]))
            return err_set(
                err, ERR_UNSUPPORTED,
                "an adapter adds to %s, which %s models multiply in a way that ingot cannot add to; use "
                "an adapter without it",
                s->loras[i].a.name, s->parts.model->arch->name);
    return true;
}

bool adapters_write(struct stage *s, uint32_t slot, const float *scales, struct err *err)
{
    static const float none[MOST_ADAPTERS];
    uint64_t bytes = s->n_adapters * sizeof *scales;

    for (uint32_t i = 0; i < s->n_others; i++)
        if (!adapters_write(&s->others[i], slot, scales, err))
            return false;
    return bytes == 0 || buffer_write(&s->scales, slot * bytes, scales ? scales : none, bytes, err);
}
