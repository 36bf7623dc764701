// embedded.c - see embedded.h.
//
// INGOT_EMBED is the file's path, set by the build when the file is there.
#include "engine/embedded.h"

#ifdef INGOT_EMBED
#include "base/incbin.h"

INCBIN(embedded_model, INGOT_EMBED);

bool embedded_model(const void **bytes, size_t *n)
{
    *bytes = embedded_model_first;
    *n = (size_t)(embedded_model_end - embedded_model_first);
    return true;
}
#else
bool embedded_model(const void **bytes, size_t *n)
{
    *bytes = NULL;
    *n = 0;
    return false;
}
#endif

bool embedded_or_file(struct model_file **file, const char *path, struct err *err)
{
    const void *bytes;
    size_t n;

    if (path)
        return model_file_open(file, path, err);
    if (!embedded_model(&bytes, &n))
        return err_set(err, ERR_NOT_FOUND, "this build holds no model; name one with -m FILE");
    return model_file_open_memory(file, bytes, n, "built-in model", err);
}
