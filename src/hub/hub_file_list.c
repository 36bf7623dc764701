// hub_file_list.c - see hub_file_list.h.
#include "hub/hub_file_list.h"
#include <jansson.h>
#include "base/log.h"
#include "text/json_memory.h"

// The digest that names the blob: LFS files have a SHA-256, others are git objects.
static bool read_oid(const json_t *entry, struct hub_file *f)
{
    const char *sha256 = json_string_value(json_object_get(json_object_get(entry, "lfs"), "sha256"));
    const char *git = json_string_value(json_object_get(entry, "blobId"));
    const char *oid = sha256 ? sha256 : git;

    if (!oid || !hub_hex(str_from(oid), sha256 ? HUB_OID : HUB_COMMIT))
        return false;
    snprintf(f->oid, sizeof f->oid, "%s", oid);
    return true;
}

static bool read_entry(const json_t *entry, struct hub_file *f)
{
    const json_t *name = json_object_get(entry, "rfilename"), *size = json_object_get(entry, "size");

    f->path = (struct str){ json_string_value(name), json_string_length(name) };
    if (!f->path.at || !json_is_integer(size) || json_integer_value(size) < 0)
        return false;
    f->bytes = (uint64_t)json_integer_value(size);
    if (!hub_path_safe(f->path)) {
        log_line(LOG_INFO, "hub", "a file's name in the list is no path below a folder: it is left out");
        return false;
    }
    return read_oid(entry, f);
}

static bool read_siblings(const json_t *siblings, struct hub_files *files, struct arena *arena,
                          struct err *err)
{
    size_t n = json_array_size(siblings);

    if (n > HUB_MAX_FILES)
        return err_set(err, ERR_LIMIT, "the list has %zu files; at most %d are read", n, HUB_MAX_FILES);
    files->at = arena_alloc_array(arena, n, sizeof *files->at);
    for (size_t i = 0; files->at && i < n; i++) {
        struct hub_file f = { 0 };
        if (!read_entry(json_array_get(siblings, i), &f))
            continue;
        f.path = arena_str(arena, f.path);
        if (!f.path.at)
            return err_memory(err, "a list of files");
        files->at[files->n++] = f;
    }
    if (n > 0 && files->n == 0)
        return err_set(err, ERR_INPUT, "of %zu files in the list none has a name, a size and a sum", n);
    hub_files_sort(files);
    return files->at || err_memory(err, "a list of files");
}

bool hub_file_list_read(struct str json, struct hub_files *files, struct arena *arena, struct err *err)
{
    json_error_t where;
    json_t *list = json_memory_read(json, 0, &where);
    const char *sha = json_string_value(json_object_get(list, "sha"));
    const json_t *siblings = json_object_get(list, "siblings");
    bool ok = false;

    *files = (struct hub_files){ 0 };
    if (!list && json_memory_failed())
        err_memory(err, "a list of files");
    else if (!list)
        err_set(err, ERR_INPUT, "the list of files is no JSON: line %d, column %d", where.line, where.column);
    else if (!sha || !hub_hex(str_from(sha), HUB_COMMIT))
        err_set(err, ERR_INPUT, "the list of files has no \"sha\" of %d hexadecimal digits", HUB_COMMIT);
    else if (!json_is_array(siblings))
        err_set(err, ERR_INPUT, "the list of files has no \"siblings\"");
    else
        ok = snprintf(files->commit, sizeof files->commit, "%s", sha) > 0 &&
             read_siblings(siblings, files, arena, err);
    json_decref(list);
    return ok;
}
