// embedded.c - see embedded.h.
//
// INGOT_EMBED, INGOT_EMBED_EYES and INGOT_EMBED_MMPROJ are paths, set by the build when the files are there.
#include "engine/embedded.h"
#include "base/file.h"
#include "base/incbin.h"
#include "engine/api.h"

#ifdef INGOT_EMBED
INCBIN(embedded_model, INGOT_EMBED);
#endif
#ifdef INGOT_EMBED_EYES
INCBIN(embedded_seeing, INGOT_EMBED_EYES);
INCBIN(embedded_eyes, INGOT_EMBED_MMPROJ);
#endif

static const struct embedded models[] = {
#ifdef INGOT_EMBED
    { INGOT_BUILTIN, embedded_model_first, embedded_model_end, NULL, NULL },
#endif
#ifdef INGOT_EMBED_EYES
    { INGOT_BUILTIN_EYES, embedded_seeing_first, embedded_seeing_end, embedded_eyes_first,
      embedded_eyes_end },
#endif
    { 0 },
};

const struct embedded *embedded_find(const char *name)
{
    for (const struct embedded *m = models; m->name; m++)
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
