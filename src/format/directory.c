// directory.c - see directory.h.
#include "format/directory.h"
#include <stdlib.h>
#include "base/mem.h"
#include "format/file_guard.h"

struct model_file *directory_create(enum model_format format, const char *path, struct err *err)
{
    struct model_file *file = mem_alloc(sizeof *file);

    if (file) {
        file->format = format;
        file->arena = arena_create(DIRECTORY_ARENA_BYTES);
        file->path = file->arena ? arena_printf(file->arena, "%s", path) : NULL;
    }
    if (file && file->path)
        return file;
    directory_destroy(file);
    err_memory(err, "a model's directory");
    return NULL;
}

void directory_destroy(struct model_file *file)
{
    if (!file)
        return;
    for (size_t i = 0; i < file->n_maps; i++) {
        file_unguard(file->guards ? file->guards[i] : 0);
        file_map_close(&file->maps[i]);
    }
    mem_free(file->guards);
    mem_free(file->maps);
    mem_free(file->tensors);
    mem_free(file->metas);
    mem_free(file->tensor_names);
    mem_free(file->meta_names);
    arena_destroy(file->arena);
    arena_destroy(file->copies);
    mem_free(file);
}

// Room for one more. The memory follows the entries that are really there.
static void *grown(void *array, size_t n, size_t *capacity, size_t bytes)
{
    if (n < *capacity)
        return array;
    size_t more = *capacity ? *capacity * 2 : 64;
    void *larger = mem_realloc(array, more * bytes);
    if (larger)
        *capacity = more;
    return larger;
}

bool directory_map(struct model_file *file, const char *path, struct str *bytes, struct err *err)
{
    struct file_map *maps = grown(file->maps, file->n_maps, &file->maps_capacity, sizeof *maps);

    if (!maps)
        return err_memory(err, "a list of files");
    file->maps = maps;
    if (!file_map_open(&maps[file->n_maps], path, err))
        return false;
    *bytes = (struct str){ (const char *)maps[file->n_maps].at, maps[file->n_maps].bytes };
    file->n_maps++;
    return true;
}

bool directory_add_tensor(struct model_file *file, const struct file_tensor *tensor, struct err *err)
{
    if (file->n_tensors >= DIRECTORY_MAX_TENSORS)
        return err_set(err, ERR_LIMIT, "more than %d tensors", DIRECTORY_MAX_TENSORS);
    struct file_tensor *tensors =
        grown(file->tensors, file->n_tensors, &file->tensors_capacity, sizeof *tensors);
    if (!tensors)
        return err_memory(err, "the list of tensors");
    file->tensors = tensors;
    tensors[file->n_tensors++] = *tensor;
    return true;
}

bool directory_add_meta(struct model_file *file, const struct meta *meta, struct err *err)
{
    if (file->n_metas >= DIRECTORY_MAX_METAS)
        return err_set(err, ERR_LIMIT, "more than %d values", DIRECTORY_MAX_METAS);
    struct meta *metas = grown(file->metas, file->n_metas, &file->metas_capacity, sizeof *metas);
    if (!metas)
        return err_memory(err, "the list of values");
    file->metas = metas;
    metas[file->n_metas++] = *meta;
    return true;
}

static int compare_names(const void *a, const void *b)
{
    return str_order(((const struct name_index *)a)->name, ((const struct name_index *)b)->name);
}

static bool sort_names(struct name_index *names, size_t n, const char *what, struct err *err)
{
    if (n)
        qsort(names, n, sizeof *names, compare_names);
    for (size_t i = 1; i < n; i++)
        if (str_eq(names[i - 1].name, names[i].name))
            return err_set(err, ERR_INPUT, "%s '%.*s' is there twice; each must be there once", what,
                           STR_ARG(names[i].name));
    return true;
}

bool directory_index(struct model_file *file, struct err *err)
{
    file->tensor_names = mem_alloc_array(file->n_tensors + 1, sizeof *file->tensor_names);
    file->meta_names = mem_alloc_array(file->n_metas + 1, sizeof *file->meta_names);
    if (!file->tensor_names || !file->meta_names)
        return err_memory(err, "a model's index");
    for (size_t i = 0; i < file->n_tensors; i++)
        file->tensor_names[i] = (struct name_index){ file->tensors[i].name, (uint32_t)i };
    for (size_t i = 0; i < file->n_metas; i++)
        file->meta_names[i] = (struct name_index){ file->metas[i].key, (uint32_t)i };
    return sort_names(file->tensor_names, file->n_tensors, "tensor", err) &&
           sort_names(file->meta_names, file->n_metas, "key", err);
}

// Length of the UTF-8 character at `at` (n bytes are left), or 0.
static size_t utf8_length(const unsigned char *at, size_t n)
{
    size_t length = at[0] < 0x80                    ? 1
                    : at[0] >= 0xc2 && at[0] < 0xe0 ? 2
                    : at[0] >= 0xe0 && at[0] < 0xf0 ? 3
                    : at[0] < 0xf5                  ? 4
                                                    : 0;

    if (length == 0 || length > n || (at[0] >= 0x80 && at[0] < 0xc2))
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xf0 && at[1] < 0x90);
    bool outside = (at[0] == 0xed && at[1] > 0x9f) || (at[0] == 0xf4 && at[1] > 0x8f);
    return overlong || outside ? 0 : length;
}

bool directory_name_ok(struct str name)
{
    const unsigned char *at = (const unsigned char *)name.at;

    for (size_t i = 0, step; i < name.n; i += step) {
        step = utf8_length(at + i, name.n - i);
        if (step == 0 || at[i] < 0x20 || at[i] == 0x7f)
            return false;
    }
    return true;
}

bool directory_utf8_ok(struct str text)
{
    const unsigned char *at = (const unsigned char *)text.at;

    for (size_t i = 0, step; i < text.n; i += step)
        if ((step = utf8_length(at + i, text.n - i)) == 0)
            return false;
    return true;
}

static int compare_ranges(const void *a, const void *b)
{
    const struct byte_range *x = a, *y = b;
    int order = (x->begin > y->begin) - (x->begin < y->begin);
    return order ? order : (x->end > y->end) - (x->end < y->end);
}

bool directory_check_ranges(struct byte_range *ranges, size_t n, struct err *err)
{
    if (n)
        qsort(ranges, n, sizeof *ranges, compare_ranges);
    for (size_t i = 1; i < n; i++)
        if (ranges[i].begin < ranges[i - 1].end)
            return err_set(
                err, ERR_INPUT,
                "tensors '%.*s' and '%.*s' overlap: one ends at data byte %llu, the other begins at %llu",
                STR_ARG(ranges[i - 1].name), STR_ARG(ranges[i].name), (unsigned long long)ranges[i - 1].end,
                (unsigned long long)ranges[i].begin);
    return true;
}
