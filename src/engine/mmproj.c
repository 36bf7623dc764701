// mmproj.c - see mmproj.h.
//
// A converter gives the language half of a vision model the architecture "llama", as any Llama. Only its
// vocabulary tells the two apart.
#include "engine/mmproj.h"
#include <dirent.h>
#include <errno.h>
#include <strings.h>
#include "base/err.h"
#include "base/log.h"
#include "engine/prompt_pictures.h"

struct mmproj_candidates {
    uint32_t n;
    char name[256];   // of the first
    struct buf names; // of all, for a warning
};

static bool is_mmproj(const char *name)
{
    size_t n = strlen(name);

    return n > 5 && strncasecmp(name, "mmproj", 6) == 0 && strcasecmp(name + n - 5, ".gguf") == 0;
}

static void add_name(struct mmproj_candidates *c, const char *name)
{
    if (c->n++ == 0)
        snprintf(c->name, sizeof c->name, "%s", name);
    buf_printf(&c->names, "%s%s", c->n > 1 ? ", " : "", name);
}

static void list_folder(struct mmproj_candidates *c, const char *folder)
{
    DIR *dir = opendir(folder);

    if (dir)
        errno = 0;
    for (const struct dirent *d; dir && (d = readdir(dir)); errno = 0)
        if (is_mmproj(d->d_name))
            add_name(c, d->d_name);
    if (errno)
        log_line(LOG_WARN, "load", "%s: cannot list the folder, so mmproj files in it are not found: %s",
                 folder, strerror(errno));
    if (dir)
        closedir(dir);
}

bool mmproj_is_beside(const char *path)
{
    const char *slash = strrchr(path, '/');
    struct mmproj_candidates c = { 0 };
    char folder[MMPROJ_PATH_BYTES];

    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    list_folder(&c, folder);
    buf_free(&c.names);
    return c.n > 0;
}

bool mmproj_find(const char *model, const struct model_file *file, const struct tokenizer *tokenizer,
                 char path[MMPROJ_PATH_BYTES])
{
    const char *slash = model ? strrchr(model, '/') : NULL;
    struct mmproj_candidates c = { 0 };
    int n = slash ? (int)(slash - model) + 1 : 0;

    if (!model || model_file_format(file) != MODEL_GGUF || !prompt_pictures_known(tokenizer) ||
        n >= MMPROJ_PATH_BYTES)
        return false;
    snprintf(path, MMPROJ_PATH_BYTES, "%.*s", n, model);
    list_folder(&c, n ? path : ".");
    if (c.n > 1 && !c.names.failed)
        log_line(LOG_WARN, "load",
                 "%s: beside it are %u mmproj files (%s) and none is taken; name one with %s", model, c.n,
                 c.names.at, err_option("mmproj"));
    bool found =
        c.n == 1 && snprintf(path, MMPROJ_PATH_BYTES, "%.*s%s", n, model, c.name) < MMPROJ_PATH_BYTES;
    buf_free(&c.names);
    return found;
}
