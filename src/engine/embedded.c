// embedded.c - see embedded.h.
#include "engine/embedded.h"
#include "base/file.h"
#include "engine/api.h"

const struct embedded *embedded_find(const char *name)
{
    for (const struct embedded *m = embedded_models; m->name; m++)
        if (!strcmp(m->name, name ? name : INGOT_BUILTIN))
            return m;
    return NULL;
}

const struct embedded *embedded_of(const char *path)
{
    return path && file_exists(path) ? NULL : embedded_find(path);
}

static bool open_part(struct model_file **file, const char *first, const char *end, const char *name,
                      struct err *err)
{
    return model_file_open_memory(file, first, (size_t)(end - first), name, err);
}

bool embedded_or_file(struct model_file **file, const char *path, struct err *err)
{
    const struct embedded *m = embedded_of(path);

    if (m)
        return open_part(file, m->model, m->model_end, path ? m->name : "built-in model", err);
    if (path)
        return model_file_open(file, path, err);
    return err_set(err, ERR_NOT_FOUND, "this build holds no model; name one with -m FILE");
}

bool embedded_open_eyes(struct model_file **file, const struct embedded *m, struct err *err)
{
    return open_part(file, m->eyes, m->eyes_end, m->name, err);
}
