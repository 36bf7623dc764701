// model_file.c - opening by kind, lookups, and typed reading of values; see model_file.h.
#include "format/model_file.h"
#include "base/mem.h"
#include "format/file_guard.h"
#include "format/gguf.h"
#include "format/safetensors.h"

static bool finish(struct model_file *file, bool ok, struct model_file **result, struct err *err)
{
    if (ok && !directory_index(file, err))
        ok = err_prefix(err, "%s", file->path);
    if (!ok) {
        directory_destroy(file);
        file = NULL;
    }
    *result = file;
    return ok;
}

typedef bool open_folder(struct model_file *file, struct err *err);

static bool open_by_kind(struct model_file **result, const char *path, open_folder *open_safetensors,
                         struct err *err)
{
    bool safetensors = str_ends(str_from(path), STR(".safetensors")) || file_is_directory(path);
    struct model_file *file = directory_create(safetensors ? MODEL_SAFETENSORS : MODEL_GGUF, path, err);

    *result = NULL;
    if (!file)
        return false;
    return finish(file, safetensors ? open_safetensors(file, err) : gguf_open(file, err), result, err);
}

bool model_file_open(struct model_file **result, const char *path, struct err *err)
{
    return open_by_kind(result, path, safetensors_open, err);
}

bool model_file_open_adapter(struct model_file **result, const char *path, struct err *err)
{
    return open_by_kind(result, path, safetensors_open_adapter, err);
}

bool model_file_open_memory(struct model_file **result, const void *bytes, size_t n, const char *name,
                            struct err *err)
{
    struct model_file *file = directory_create(MODEL_GGUF, name, err);

    *result = NULL;
    if (!file)
        return false;
    bool ok = gguf_open_memory(file, (struct str){ bytes, n }, err) ? true : err_prefix(err, "%s", name);
    return finish(file, ok, result, err);
}

void model_file_close(struct model_file *file)
{
    directory_destroy(file);
}

enum model_format model_file_format(const struct model_file *file)
{
    return file->format;
}

const char *model_file_path(const struct model_file *file)
{
    return file->path;
}

size_t model_file_n_tensors(const struct model_file *file)
{
    return file->n_tensors;
}

const struct file_tensor *model_file_tensor_at(const struct model_file *file, size_t index)
{
    CHECK(index < file->n_tensors);
    return &file->tensors[index];
}

size_t model_file_n_metas(const struct model_file *file)
{
    return file->n_metas;
}

const struct meta *model_file_meta_at(const struct model_file *file, size_t index)
{
    CHECK(index < file->n_metas);
    return &file->metas[index];
}

struct str model_file_tokenizer_json(const struct model_file *file)
{
    return file->tokenizer_json;
}

static const struct name_index *find(const struct name_index *names, size_t n, struct str name)
{
    size_t low = 0, high = n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = str_order(names[middle].name, name);
        if (order == 0)
            return &names[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

const struct file_tensor *model_file_tensor(const struct model_file *file, const char *name)
{
    const struct name_index *found = find(file->tensor_names, file->n_tensors, str_from(name));
    return found ? &file->tensors[found->at] : NULL;
}

const struct meta *model_file_meta(const struct model_file *file, const char *key)
{
    const struct name_index *found = find(file->meta_names, file->n_metas, str_from(key));
    char nested[160];

    if (!found && file->format == MODEL_SAFETENSORS &&
        snprintf(nested, sizeof nested, "text_config.%s", key) < (int)sizeof nested)
        found = find(file->meta_names, file->n_metas, str_from(nested));
    return found ? &file->metas[found->at] : NULL;
}

void model_file_forget(const struct model_file *file, const struct file_tensor *t)
{
    for (size_t i = 0; i < file->n_maps; i++) {
        const struct file_map *map = &file->maps[i];
        if (t->data >= map->at && t->data < map->at + map->bytes)
            file_map_forget(map, t->data, t->bytes);
    }
}

bool model_file_guard(struct model_file *file, struct err *err)
{
    if (file->guards || file->n_maps == 0)
        return true;
    file->guards = mem_alloc_array(file->n_maps, sizeof *file->guards);
    if (!file->guards)
        return err_memory(err, "a model's files");
    for (size_t i = 0; i < file->n_maps; i++)
        file->guards[i] = file_guard(&file->maps[i]);
    return true;
}

bool model_file_lost(const struct model_file *file, struct err *err)
{
    bool lost = false;

    for (size_t i = 0; file && file->guards && i < file->n_maps; i++)
        lost |= file_guard_lost(file->guards[i]);
    if (lost)
        err_set(err, ERR_IO, "%s was cut short, or its disk failed, while it was in use; load it again",
                file->path);
    return lost;
}

// What was found, for messages.
static const char *describe(const struct meta *m, char text[96])
{
    bool shown = m->type == META_STRING && m->s.n <= 64 && directory_name_ok(m->s);

    if (m->type == META_UINT)
        snprintf(text, 96, "%llu", (unsigned long long)m->u);
    else if (m->type == META_INT)
        snprintf(text, 96, "%lld", (long long)m->i);
    else if (m->type == META_FLOAT)
        snprintf(text, 96, "%g", m->f);
    else if (m->type == META_BOOL)
        snprintf(text, 96, "%s", m->b ? "true" : "false");
    else if (m->type == META_ARRAY)
        snprintf(text, 96, "an array of %llu", (unsigned long long)m->n);
    else if (shown)
        snprintf(text, 96, "the string '%.*s'", (int)m->s.n, m->s.at);
    else
        snprintf(text, 96, "a string of %zu bytes", m->s.n);
    return text;
}

static bool wrong(const struct model_file *file, const struct meta *m, struct err *err, const char *expected)
{
    char text[96];
    return err_set(err, ERR_INPUT, "%s: %.*s is %s; expected %s", file->path, STR_ARG(m->key),
                   describe(m, text), expected);
}

bool model_file_u64(const struct model_file *file, const char *key, uint64_t min, uint64_t max,
                    uint64_t *value, struct err *err)
{
    const struct meta *m = model_file_meta(file, key);
    char expected[96];

    if (!m)
        return true;
    bool whole = m->type == META_UINT || (m->type == META_INT && m->i >= 0);
    if (!whole || m->u < min || m->u > max) {
        snprintf(expected, sizeof expected, "a whole number from %llu to %llu", (unsigned long long)min,
                 (unsigned long long)max);
        return wrong(file, m, err, expected);
    }
    *value = m->u;
    return true;
}

bool model_file_f64(const struct model_file *file, const char *key, double min, double max, double *value,
                    struct err *err)
{
    const struct meta *m = model_file_meta(file, key);
    char expected[96];

    if (!m)
        return true;
    bool number = m->type == META_FLOAT || m->type == META_UINT || m->type == META_INT;
    double f = m->type == META_FLOAT ? m->f : m->type == META_UINT ? (double)m->u : (double)m->i;
    if (!number || !(f >= min && f <= max)) { // NaN fails too
        snprintf(expected, sizeof expected, "a number from %g to %g", min, max);
        return wrong(file, m, err, expected);
    }
    *value = f;
    return true;
}

bool model_file_bool(const struct model_file *file, const char *key, bool *value, struct err *err)
{
    const struct meta *m = model_file_meta(file, key);

    if (!m)
        return true;
    if (m->type != META_BOOL)
        return wrong(file, m, err, "true or false");
    *value = m->b;
    return true;
}

bool model_file_string(const struct model_file *file, const char *key, struct str *value, struct err *err)
{
    const struct meta *m = model_file_meta(file, key);

    if (!m)
        return true;
    if (m->type != META_STRING)
        return wrong(file, m, err, "a string");
    *value = m->s;
    return true;
}
