// verb_inspect.c - ingot inspect: what a model file holds, and the memory it needs.
//
// Nothing in a file is trusted: strings are printed as JSON strings and cut after some bytes, arrays after
// some elements.
#include "base/divide.h"
#include "main/settings.h"
#include "main/terminal/fail.h"
#include "main/terminal/out.h"
#include "main/terminal/out_json.h"
#include "main/terminal/signals.h"
#include "model_tools/model_info.h"
#include "models/arch.h"

enum { MAX_STRING = 200, MAX_ELEMENTS = 8 };

static json_t *meta_json(const struct meta *m);

// Up to MAX_ELEMENTS values are printed; a longer array is {"n": number, "first": [...]}.
static json_t *array_json(const struct meta *m)
{
    json_t *first = json_array();

    for (uint64_t i = 0; i < m->n && i < MAX_ELEMENTS; i++) {
        struct meta element = meta_at(m, i);
        json_array_append_new(first, meta_json(&element));
    }
    if (m->n <= MAX_ELEMENTS)
        return first;
    return json_pack("{s:I, s:o}", "n", (json_int_t)m->n, "first", first);
}

static json_t *string_json(struct str s)
{
    size_t n = s.n < MAX_STRING ? s.n : MAX_STRING;

    while (n > 0 && n < s.n && ((unsigned char)s.at[n] & 0xc0) == 0x80) // not in the middle of a character
        n--;
    json_t *text = json_stringn(s.at, n);
    return text ? text : json_sprintf("(%zu bytes that are no UTF-8)", s.n);
}

static json_t *meta_json(const struct meta *m)
{
    switch (m->type) {
    case META_UINT:
        return m->u <= INT64_MAX ? json_integer((json_int_t)m->u)
                                 : json_sprintf("%llu", (unsigned long long)m->u);
    case META_INT:
        return json_integer(m->i);
    case META_FLOAT:
        return m->f - m->f == 0 ? json_real(m->f) : json_sprintf("%g", m->f);
    case META_BOOL:
        return json_boolean(m->b);
    case META_STRING:
        return string_json(m->s);
    case META_ARRAY:
        return array_json(m);
    }
    return json_null();
}

static void shape_text(const struct file_tensor *t, char *text, size_t n)
{
    size_t at = 0;

    for (uint32_t d = 0; d < t->n_dims && at < n; d++)
        at += (size_t)snprintf(text + at, n - at, "%s%llu", d ? ", " : "", (unsigned long long)t->dims[d]);
}

struct format_sum {
    uint64_t n, bytes;
};

static void sum_formats(const struct model_file *file, struct format_sum sums[N_QUANTS])
{
    for (size_t i = 0; i < model_file_n_tensors(file); i++) {
        const struct file_tensor *t = model_file_tensor_at(file, i);
        sums[t->format].n++;
        sums[t->format].bytes += t->bytes;
    }
}

// ---- text

static const double MIB = 1048576.0;

static const char *pooling_name(const struct model *m)
{
    static const char *const names[] = { [POOLING_NONE] = "none",
                                         [POOLING_MEAN] = "mean",
                                         [POOLING_CLS] = "cls",
                                         [POOLING_LAST] = "last",
                                         [POOLING_RANK] = "rank" };
    return names[m->embedder.pooling];
}

static void print_model(const struct model_info *s)
{
    const struct model_config *c = &s->model.config;
    const struct place_memory *m = &s->memory;

    if (!s->known && s->eyes.known) {
        out_text("model         none: these are the eyes of one, which is in another file\n");
        return;
    }
    if (!s->known) {
        out_printf("model         cannot be run: %s\n", s->unknown.message);
        return;
    }
    out_printf("model         %s, %.2f M parameters, %u layer%s, width %u, %u head%s (%u of K and V) of %u, "
               "FFN %u, %u tokens, "
               "context %u\n",
               s->model.arch->name, (double)s->model.n_parameters * 1e-6, c->n_layers,
               str_plural(c->n_layers), c->n_cols, c->n_heads, str_plural(c->n_heads), c->n_kv_heads,
               c->head_dim, c->n_ffn, c->n_vocab, c->n_context);
    if (c->latent_dims)
        out_printf("latents       %u of a key's %u numbers are the value, of all heads; pages have no V\n",
                   c->latent_dims, c->head_dim);
    if (s->model.n_experts)
        out_printf("experts       %u in a layer, %u for a token, which uses %.2f M parameters\n",
                   s->model.n_experts, s->model.n_used_experts, (double)s->n_active * 1e-6);
    if (s->model.drafts)
        out_printf("drafts        by a layer more, of %.2f M parameters (--speculate)\n",
                   (double)s->model.n_draft_parameters * 1e-6);
    if (s->model.embedder.pooling != POOLING_NONE || s->model.arch->is_encoder)
        out_printf("embeds        %s%s\n", pooling_name(&s->model),
                   s->model.arch->is_encoder ? "; every token sees the whole text, and nothing is generated"
                                             : "");
    out_printf("memory        %.1f MiB: weights %.1f, KV pages %.1f for %u tokens, scratch %.1f\n",
               (double)(m->weights + m->pages + m->scratch) / MIB, (double)m->weights / MIB,
               (double)m->pages / MIB, s->n_context, (double)m->scratch / MIB);
    if (m->tower_weights)
        out_printf("of the eyes   weights %.1f MiB, scratch %.1f\n", (double)m->tower_weights / MIB,
                   (double)m->tower_scratch / MIB);
    out_printf("read a token  %.1f MiB of weights, and %.1f KiB for every token before it\n",
               (double)s->read_bytes / MIB, (double)s->kv_bytes / 1024);
}

static void print_eyes(const struct model_eyes *e)
{
    const struct tower_config *c = &e->tower.config;
    uint32_t n_tiles = image_most_tiles(&c->processor);

    if (!e->known) {
        if (e->unknown.message[0])
            out_printf("eyes          cannot be used: %s\n", e->unknown.message);
        return;
    }
    out_printf("eyes          %s, %.2f M parameters, %u layer%s, width %u, %u head%s, FFN %u, rows of %u\n",
               e->tower.arch->projector, (double)e->tower.n_parameters * 1e-6, c->n_layers,
               str_plural(c->n_layers), c->n_cols, c->n_heads, str_plural(c->n_heads), c->n_ffn, c->n_out);
    out_text("pictures      ");
    if (c->processor.tiling == IMAGE_BY_EDGE)
        out_printf("longest edge %u, ", c->processor.longest_edge);
    out_printf("tiles of %u in patches of %u, %u tokens a tile, at most %u tile%s\n", c->processor.tile,
               c->patch, c->processor.tokens_a_tile, n_tiles, str_plural(n_tiles));
    if (!e->file)
        return;
    out_printf("eyes' file    ");
    out_json(json_string(model_file_path(e->file)), 0);
    out_printf(", %.2f MiB of weights\n", (double)e->tower.weight_bytes / MIB);
}

static void print_formats(const struct model_file *file)
{
    struct format_sum sums[N_QUANTS] = { 0 };

    sum_formats(file, sums);
    for (enum quant q = 0; q < N_QUANTS; q++) {
        if (sums[q].n)
            out_printf("%-13s %llu tensor%s, %.2f MiB\n", quant_info(q)->name, (unsigned long long)sums[q].n,
                       str_plural(sums[q].n), (double)sums[q].bytes / MIB);
    }
}

static void print_text(const struct model_info *s, bool tensors)
{
    const struct model_file *file = s->file;
    size_t n_tensors = model_file_n_tensors(file), n_values = model_file_n_metas(file);

    out_printf("file          ");
    out_json(json_string(model_file_path(file)), 0);
    out_printf(", %s, %zu tensor%s, %zu value%s\n",
               model_file_format(file) == MODEL_GGUF ? "GGUF" : "safetensors", n_tensors,
               str_plural(n_tensors), n_values, str_plural(n_values));
    print_model(s);
    print_eyes(&s->eyes);
    print_formats(file);
    out_text("\nvalues\n");
    for (size_t i = 0; i < model_file_n_metas(file); i++) {
        const struct meta *m = model_file_meta_at(file, i);
        out_printf("  %.*s = ", STR_ARG(m->key));
        out_json(meta_json(m), 0);
        out_text("\n");
    }
    if (tensors)
        out_text("\ntensors\n");
    for (size_t i = 0; i < model_file_n_tensors(file) && tensors; i++) {
        const struct file_tensor *t = model_file_tensor_at(file, i);
        char shape[96] = "";
        shape_text(t, shape, sizeof shape);
        out_printf("  %-40.*s %-7s [%s]\n", STR_ARG(t->name), quant_info(t->format)->name, shape);
    }
}

// ---- JSON

static json_t *model_json(const struct model_info *s)
{
    const struct model_config *c = &s->model.config;
    json_t *o = json_object();

    json_object_set_new(o, "architecture", json_string(s->model.arch->name));
    json_object_set_new(o, "n_parameters", json_integer((json_int_t)s->model.n_parameters));
    json_object_set_new(o, "n_active_parameters", json_integer((json_int_t)s->n_active));
    json_object_set_new(o, "n_experts", json_integer(s->model.n_experts));
    json_object_set_new(o, "n_experts_used", json_integer(s->model.n_used_experts));
    json_object_set_new(o, "n_layers", json_integer(c->n_layers));
    json_object_set_new(o, "n_draft_parameters", json_integer((json_int_t)s->model.n_draft_parameters));
    json_object_set_new(o, "n_embd", json_integer(c->n_cols));
    json_object_set_new(o, "n_heads", json_integer(c->n_heads));
    json_object_set_new(o, "n_kv_heads", json_integer(c->n_kv_heads));
    json_object_set_new(o, "head_dim", json_integer(c->head_dim));
    json_object_set_new(o, "latent_dims", json_integer(c->latent_dims));
    json_object_set_new(o, "n_ffn", json_integer(c->n_ffn));
    json_object_set_new(o, "n_vocab", json_integer(c->n_vocab));
    json_object_set_new(o, "n_context", json_integer(c->n_context));
    json_object_set_new(o, "pooling", json_string(pooling_name(&s->model)));
    json_object_set_new(o, "n_vector", json_integer(s->model.embedder.n_vector));
    json_object_set_new(o, "weight_bytes", json_integer((json_int_t)s->memory.weights));
    json_object_set_new(o, "page_bytes", json_integer((json_int_t)s->memory.pages));
    json_object_set_new(o, "scratch_bytes", json_integer((json_int_t)s->memory.scratch));
    json_object_set_new(o, "tower_weight_bytes", json_integer((json_int_t)s->memory.tower_weights));
    json_object_set_new(o, "tower_scratch_bytes", json_integer((json_int_t)s->memory.tower_scratch));
    json_object_set_new(o, "memory_for_context", json_integer(s->n_context));
    json_object_set_new(o, "read_bytes_per_token", json_integer((json_int_t)s->read_bytes));
    json_object_set_new(o, "kv_bytes_per_position", json_integer((json_int_t)s->kv_bytes));
    return o;
}

static json_t *eyes_json(const struct model_eyes *e)
{
    const struct tower_config *c = &e->tower.config;
    json_t *o = json_object();

    if (!e->known) {
        json_object_set_new(o, "error", json_string(e->unknown.message));
        return o;
    }
    json_object_set_new(o, "tower", json_string(e->tower.arch->projector));
    json_object_set_new(o, "n_parameters", json_integer((json_int_t)e->tower.n_parameters));
    json_object_set_new(o, "weight_bytes", json_integer((json_int_t)e->tower.weight_bytes));
    json_object_set_new(o, "n_layers", json_integer(c->n_layers));
    json_object_set_new(o, "n_embd", json_integer(c->n_cols));
    json_object_set_new(o, "n_heads", json_integer(c->n_heads));
    json_object_set_new(o, "n_ffn", json_integer(c->n_ffn));
    json_object_set_new(o, "longest_edge", json_integer(c->processor.longest_edge));
    json_object_set_new(o, "tile", json_integer(c->processor.tile));
    json_object_set_new(o, "patch", json_integer(c->patch));
    json_object_set_new(o, "tokens_per_tile", json_integer(c->processor.tokens_a_tile));
    json_object_set_new(o, "max_tiles", json_integer(image_most_tiles(&c->processor)));
    if (e->file)
        json_object_set_new(o, "file", json_string(model_file_path(e->file)));
    return o;
}

static json_t *tensors_json(const struct model_file *file)
{
    json_t *all = json_array();

    for (size_t i = 0; i < model_file_n_tensors(file); i++) {
        const struct file_tensor *t = model_file_tensor_at(file, i);
        json_t *shape = json_array(), *o = json_object();
        for (uint32_t d = 0; d < t->n_dims; d++)
            json_array_append_new(shape, json_integer((json_int_t)t->dims[d]));
        json_object_set_new(o, "name", string_json(t->name));
        json_object_set_new(o, "format", json_string(quant_info(t->format)->name));
        json_object_set_new(o, "shape", shape);
        json_object_set_new(o, "bytes", json_integer((json_int_t)t->bytes));
        json_array_append_new(all, o);
    }
    return all;
}

static void print_json(const struct model_info *s)
{
    json_t *o = json_object(), *values = json_object();

    json_object_set_new(o, "file", json_string(model_file_path(s->file)));
    json_object_set_new(o, "container",
                        json_string(model_file_format(s->file) == MODEL_GGUF ? "gguf" : "safetensors"));
    if (s->known)
        json_object_set_new(o, "model", model_json(s));
    else
        json_object_set_new(o, "error", json_string(s->unknown.message));
    if (s->eyes.known || s->eyes.unknown.message[0])
        json_object_set_new(o, "eyes", eyes_json(&s->eyes));
    for (size_t i = 0; i < model_file_n_metas(s->file); i++) {
        const struct meta *m = model_file_meta_at(s->file, i);
        json_object_setn_new(values, m->key.at, m->key.n, meta_json(m));
    }
    json_object_set_new(o, "values", values);
    json_object_set_new(o, "tensors", tensors_json(s->file));
    out_json(o, 0);
    out_text("\n");
}

int verb_inspect(const struct verb_call *call)
{
    const char *path = call->operands->n ? call->operands->at[0] : call->settings->model;
    struct model_info s;
    struct err err;

    if (call->operands->n > 1 || (call->operands->n && call->settings->model))
        return fail_usage("inspect: more than one file is named; expected one");
    signals_name_file(path);
    if (!model_info_open(&s, path, call->settings->n_context, &err))
        return fail(err.message);
    if (call->settings->json)
        print_json(&s);
    else
        print_text(&s, call->settings->tensors);
    model_info_close(&s);
    return out_finish();
}
