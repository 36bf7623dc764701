// safetensors_folder.c - which files make a safetensors model, and the values beside them.
//
// Data: model.safetensors.index.json names the shards; without it, the one .safetensors file there is. The
// index is checked against the shards both ways, and a shard is a plain name in the same folder, never a
// path. Values: see model_file.h.
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include "base/err.h"
#include "base/mem.h"
#include "format/json_scan.h"
#include "format/json_values.h"
#include "format/safetensors.h"

enum { MAX_PATH = 4096, MAX_SHARDS = 1024, MAX_JSON_BYTES = 64 << 20 };

struct index_line { // one line of the index: where it says a tensor is
    struct str name;
    uint32_t shard;
    bool found;
};

struct folder {
    struct model_file *file;
    char path[MAX_PATH], only[MAX_PATH]; // only: the one file that was asked for; empty: all of the folder
    struct str shards[MAX_SHARDS];
    uint32_t n_shards, shard; // shard: being read
    struct index_line *places;
    size_t n_places, places_capacity;
    struct err *err;
};

static bool join(const struct folder *f, struct str name, char path[MAX_PATH])
{
    int n = snprintf(path, MAX_PATH, "%s/%.*s", f->path, (int)name.n, name.at);
    return n >= 0 && n < MAX_PATH
               ? true
               : err_set(f->err, ERR_INPUT, "the path is longer than %d bytes", MAX_PATH - 1);
}

// A plain file name: no separators, no "..", not hidden.
static bool plain_name(struct str name)
{
    return name.n > 0 && name.n < 256 && name.at[0] != '.' && directory_name_ok(name) &&
           !memchr(name.at, '/', name.n) && !memchr(name.at, '\\', name.n) &&
           str_ends(name, STR(".safetensors"));
}

static bool find_shard(struct folder *f, struct str name, uint32_t *shard)
{
    if (!plain_name(name))
        return err_set(
            f->err, ERR_INPUT,
            "a shard must be a file NAME.safetensors in the same folder; the index names something else");
    for (*shard = f->n_shards; *shard > 0;
         --*shard) // an index lists a shard's tensors together: the last one is the likely one
        if (str_eq(f->shards[*shard - 1], name)) {
            --*shard;
            return true;
        }
    if (f->n_shards == MAX_SHARDS)
        return err_set(f->err, ERR_LIMIT, "more than %d shards", MAX_SHARDS);
    *shard = f->n_shards;
    f->shards[f->n_shards++] = name;
    return true;
}

static bool add_place(struct folder *f, struct str name, uint32_t shard)
{
    if (f->n_places == DIRECTORY_MAX_TENSORS)
        return err_set(f->err, ERR_LIMIT, "more than %d tensors", DIRECTORY_MAX_TENSORS);
    if (f->n_places == f->places_capacity) {
        size_t capacity = f->places_capacity ? f->places_capacity * 2 : 256;
        struct index_line *places = mem_realloc(f->places, capacity * sizeof *places);
        if (!places)
            return err_memory(f->err, "the index of shards");
        f->places = places;
        f->places_capacity = capacity;
    }
    f->places[f->n_places++] = (struct index_line){ name, shard, false };
    return true;
}

static bool bad_index(struct folder *f, const struct json_scan *scan, const char *problem)
{
    return err_set(f->err, ERR_INPUT, "not valid at byte %zu: %s", scan->pos,
                   scan->problem ? scan->problem : problem);
}

// "weight_map": {"tensor": "shard", ...}
static bool take_map(struct folder *f, struct json_scan *scan)
{
    enum json_token token = json_next(scan);
    struct str name, shard_name;
    uint32_t shard = 0;

    if (token != JSON_OBJECT)
        return bad_index(f, scan, "weight_map must be an object");
    while ((token = json_next(scan)) == JSON_KEY) {
        if (!json_unescape(scan, f->file->arena, &name))
            return bad_index(f, scan, "a bad name");
        if (json_next(scan) != JSON_STRING || !json_unescape(scan, f->file->arena, &shard_name))
            return bad_index(f, scan, "a shard must be a string");
        if (!find_shard(f, shard_name, &shard) || !add_place(f, name, shard))
            return false;
    }
    return token == JSON_OBJECT_END ? true : bad_index(f, scan, "");
}

static int compare_places(const void *a, const void *b)
{
    return str_order(((const struct index_line *)a)->name, ((const struct index_line *)b)->name);
}

static bool take_index(struct folder *f, struct str text)
{
    struct json_scan scan = json_begin(text);
    enum json_token token = json_next(&scan);
    bool seen = false;

    if (token != JSON_OBJECT)
        return bad_index(f, &scan, "expected an object");
    while ((token = json_next(&scan)) == JSON_KEY) {
        bool map = str_is(scan.text, "weight_map");
        if (map && seen)
            return bad_index(f, &scan, "weight_map is there twice");
        seen |= map;
        if (map ? !take_map(f, &scan) : !json_skip(&scan, json_next(&scan)))
            return scan.problem ? bad_index(f, &scan, "") : false;
    }
    if (token != JSON_OBJECT_END || json_next(&scan) != JSON_END)
        return bad_index(f, &scan, "text after the end");
    if (!seen || f->n_places == 0)
        return bad_index(f, &scan, "weight_map is missing or empty");
    qsort(f->places, f->n_places, sizeof *f->places, compare_places);
    for (size_t i = 1; i < f->n_places; i++)
        if (str_eq(f->places[i - 1].name, f->places[i].name))
            return err_set(f->err, ERR_INPUT, "tensor '%.*s' is there twice", STR_ARG(f->places[i].name));
    return true;
}

static bool see_tensor(void *owner, struct str name, struct err *err)
{
    struct folder *f = owner;
    struct index_line wanted = { .name = name };
    struct index_line *place = bsearch(&wanted, f->places, f->n_places, sizeof *place, compare_places);

    if (!place)
        return err_set(err, ERR_INPUT, "tensor '%.*s' is not in model.safetensors.index.json", STR_ARG(name));
    if (place->shard != f->shard)
        return err_set(err, ERR_INPUT, "tensor '%.*s' belongs into %.*s by model.safetensors.index.json",
                       STR_ARG(name), STR_ARG(f->shards[place->shard]));
    place->found = true;
    return true;
}

static bool read_data(struct folder *f, struct str name, bool indexed)
{
    struct safetensors_visit visit = { .tensor = indexed ? see_tensor : NULL, .owner = f };
    char path[MAX_PATH];
    struct str bytes;

    if (!join(f, name, path) || !directory_map(f->file, path, &bytes, f->err))
        return false;
    return safetensors_read(f->file, bytes, visit, f->err) ? true : err_prefix(f->err, "%s", path);
}

static bool read_shards(struct folder *f)
{
    for (f->shard = 0; f->shard < f->n_shards; f->shard++)
        if (!read_data(f, f->shards[f->shard], true))
            return false;
    for (size_t i = 0; i < f->n_places; i++)
        if (!f->places[i].found)
            return err_set(f->err, ERR_INPUT,
                           "%s: tensor '%.*s' is not in %.*s, where model.safetensors.index.json places it",
                           f->path, STR_ARG(f->places[i].name), STR_ARG(f->shards[f->places[i].shard]));
    return true;
}

// Without an index there must be exactly one.
static bool find_single(struct folder *f, struct str *name)
{
    DIR *dir = opendir(f->path);
    size_t n = 0;

    if (!dir)
        return err_set(f->err, ERR_IO, "%s: cannot list the folder", f->path);
    errno = 0;
    for (struct dirent *d; (d = readdir(dir)); errno = 0) {
        struct str found = str_from(d->d_name);
        if (!plain_name(found))
            continue;
        if (n++ == 0 || str_is(found, "model.safetensors"))
            *name = arena_str(f->file->arena, found);
    }
    int why = errno;
    closedir(dir);
    if (why)
        return err_set(f->err, ERR_IO, "%s: cannot list the folder: %s", f->path, strerror(why));
    if (n == 0)
        return err_set(f->err, ERR_NOT_FOUND, "%s: no .safetensors file in this folder", f->path);
    if (n > 1 && !str_is(*name, "model.safetensors"))
        return err_set(f->err, ERR_INPUT,
                       "%s: %zu .safetensors files and no model.safetensors.index.json; name the one to read",
                       f->path, n);
    return name->at ? true : err_memory(f->err, "a file name");
}

static bool read_tensors(struct folder *f)
{
    struct str name = str_from(f->only), text;
    char path[MAX_PATH];

    if (!join(f, STR("model.safetensors.index.json"), path))
        return false;
    if (file_exists(path) && (name.n == 0 || str_find(name, STR("-of-")) != SIZE_MAX)) {
        if (!directory_map(f->file, path, &text, f->err))
            return false;
        if (!take_index(f, text))
            return err_prefix(f->err, "%s", path);
        return read_shards(f);
    }
    return (name.n || find_single(f, &name)) && read_data(f, name, false);
}

// A file that may be missing. bytes.at is NULL then.
static bool map_beside(struct folder *f, const char *name, struct str *bytes)
{
    char path[MAX_PATH];

    *bytes = (struct str){ 0 };
    if (!join(f, str_from(name), path))
        return false;
    return !file_exists(path) || directory_map(f->file, path, bytes, f->err);
}

// What a file that must be there lacks.
static bool is_missing(struct folder *f, const char *name)
{
    char path[MAX_PATH];

    if (join(f, STR("adapter_config.json"), path) && file_exists(path))
        return err_set(f->err, ERR_INPUT, "%s: this is an adapter; give it with %s, and the model with %s",
                       f->path, err_option("adapters"), err_option("model"));
    return err_set(f->err, ERR_NOT_FOUND,
                   "%s: no %s in this folder, beside the .safetensors file, which needs one", f->path, name);
}

static bool read_json(struct folder *f, const char *name, const char *prefix, bool required)
{
    struct str text;

    if (!map_beside(f, name, &text))
        return false;
    if (!text.at)
        return !required || is_missing(f, name);
    if (text.n > MAX_JSON_BYTES)
        return err_set(f->err, ERR_LIMIT, "%s/%s: %zu bytes; at most %d are read", f->path, name, text.n,
                       MAX_JSON_BYTES);
    return json_values_add(f->file, text, prefix, name, f->err) ? true : err_prefix(f->err, "%s", f->path);
}

// The file of its own is the newer way and wins over the key.
static bool read_template(struct folder *f)
{
    struct meta m = { .key = STR("tokenizer_config.chat_template"), .type = META_STRING };

    if (!map_beside(f, "chat_template.jinja", &m.s) || !m.s.at)
        return f->err->code == ERR_NONE;
    for (size_t i = 0; i < f->file->n_metas; i++)
        if (str_eq(f->file->metas[i].key, m.key)) {
            f->file->metas[i] = m;
            return true;
        }
    return directory_add_meta(f->file, &m, f->err);
}

// The products behind an embedding model's pooling, each in a folder of its own.
static bool read_dense(struct folder *f, const char *folder)
{
    char file[64], path[MAX_PATH];
    struct str prefix = str_from(folder), bytes;

    snprintf(file, sizeof file, "%smodel.safetensors", folder);
    file[prefix.n - 1] = '/';
    if (!map_beside(f, file, &bytes) || !join(f, str_from(file), path))
        return false;
    return !bytes.at ||
           safetensors_read(f->file, bytes, (struct safetensors_visit){ .prefix = prefix }, f->err) ||
           err_prefix(f->err, "%s", path);
}

static bool split_path(struct folder *f)
{
    const char *path = f->file->path, *slash = strrchr(path, '/');
    int n;

    if (file_is_directory(path)) {
        n = snprintf(f->path, sizeof f->path, "%s", path);
    } else {
        n = slash ? snprintf(f->path, sizeof f->path, "%.*s", (int)(slash == path ? 1 : slash - path), path)
                  : snprintf(f->path, sizeof f->path, ".");
        snprintf(f->only, sizeof f->only, "%s", slash ? slash + 1 : path);
    }
    return n >= 0 && (size_t)n < sizeof f->path
               ? true
               : err_set(f->err, ERR_INPUT, "the path is longer than %d bytes", MAX_PATH - 1);
}

bool safetensors_open(struct model_file *file, struct err *err)
{
    struct err unused = { 0 };
    struct folder *f = mem_alloc(sizeof *f);

    if (!f)
        return err_memory(err, "a folder's description");
    f->file = file;
    f->err = err ? err : &unused;
    f->err->code = ERR_NONE;
    bool ok = split_path(f) && read_tensors(f) && read_json(f, "config.json", "", true) &&
              read_json(f, "generation_config.json", "generation_config.", false) &&
              read_json(f, "tokenizer_config.json", "tokenizer_config.", false) && read_template(f) &&
              read_json(f, "preprocessor_config.json", "preprocessor_config.", false) &&
              read_json(f, "processor_config.json", "processor_config.", false) &&
              read_json(f, "1_Pooling/config.json", "1_Pooling.", false) &&
              read_json(f, "2_Dense/config.json", "2_Dense.", false) &&
              read_json(f, "3_Dense/config.json", "3_Dense.", false) && read_dense(f, "2_Dense.") &&
              read_dense(f, "3_Dense.") && map_beside(f, "tokenizer.json", &file->tokenizer_json);
    mem_free(f->places);
    mem_free(f);
    return ok;
}

// Old adapters lie in a file of pickled objects, which nobody should read from strangers.
static bool has_weights(struct folder *f)
{
    char path[MAX_PATH];

    if (!*f->only)
        snprintf(f->only, sizeof f->only, "adapter_model.safetensors");
    return join(f, str_from(f->only), path) &&
           (file_exists(path) ||
            err_set(f->err, ERR_NOT_FOUND,
                    "%s: no %s in this folder; ingot reads adapters from safetensors and GGUF files", f->path,
                    f->only));
}

bool safetensors_open_adapter(struct model_file *file, struct err *err)
{
    struct err unused = { 0 };
    struct folder *f = mem_alloc(sizeof *f);

    if (!f)
        return err_memory(err, "a folder's description");
    f->file = file;
    f->err = err ? err : &unused;
    f->err->code = ERR_NONE;
    bool ok = split_path(f) && has_weights(f) && read_data(f, str_from(f->only), false) &&
              read_json(f, "adapter_config.json", "", true);
    mem_free(f);
    return ok;
}
