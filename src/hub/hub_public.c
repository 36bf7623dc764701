// hub_public.c - the function of ingot.h that finds models by name. It searches this machine alone: fetching
// needs libcurl, and is not part of the library.
#include "base/file.h"
#include "hub/hub_cache.h"
#include "ingot.h"

_Static_assert(sizeof(struct err) == sizeof(struct ingot_error), "one layout: engine/api/api.c");

static bool find(const char *name, char path[HUB_PATH], struct err *err)
{
    struct hub hub;
    struct hub_name parts;

    if (!hub_name_read(&parts, name, err) || !hub_open(&hub, true, err))
        return false;
    if (hub_find(&hub, &parts, path, err))
        return true;
    if (err->code == ERR_NOT_FOUND)
        err_prefix(err, "'ingot pull %.120s' gets it", name);
    return false;
}

bool ingot_model_find(const char *name, char *path, size_t capacity, struct ingot_error *error)
{
    char found[HUB_PATH];
    struct err err = { 0 };
    bool is_file = file_exists(name);

    bool ok = is_file || find(name, found, &err);
    size_t n = ok ? strlen(is_file ? name : found) : 0;
    if (ok && n >= capacity)
        ok = err_set(&err, ERR_LIMIT, "the path has %zu bytes and %zu fit; give more room", n + 1, capacity);
    if (ok)
        memcpy(path, is_file ? name : found, n + 1);
    else if (error)
        memcpy(error, &err, sizeof err);
    return ok;
}
