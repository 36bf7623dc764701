// chat_pictures.c - see chat_pictures.h.
#include "main/chat/chat_pictures.h"
#include <limits.h>
#include <stdlib.h>
#include <strings.h>
#include "base/file.h"
#include "base/mem.h"
#include "main/terminal/fail.h"

static bool reserve(struct chat_pictures *f)
{
    struct ingot_picture **at = mem_realloc(f->at, (f->n + 1) * sizeof *at);

    if (at)
        f->at = at;
    char **paths = at ? mem_realloc(f->paths, (f->n + 1) * sizeof *paths) : NULL;
    if (paths)
        f->paths = paths;
    return paths || (fail("out of memory for pictures"), false);
}

static char *copy_of(const char *path)
{
    char absolute[PATH_MAX];
    const char *from = realpath(path, absolute) ? absolute : path;
    size_t n = strlen(from) + 1;
    char *copy = mem_alloc(n);

    return copy ? memcpy(copy, from, n) : NULL;
}

bool chat_pictures_add(struct chat_pictures *f, const char *path)
{
    struct ingot_error error;

    if (!reserve(f))
        return false;
    f->paths[f->n] = copy_of(path);
    f->at[f->n] = f->paths[f->n] ? ingot_picture_from_file(path, &error) : NULL;
    if (f->at[f->n]) {
        f->n++;
        return true;
    }
    fail(f->paths[f->n] ? error.message : "out of memory for pictures");
    mem_free(f->paths[f->n]);
    return false;
}

void chat_pictures_free(struct chat_pictures *f)
{
    for (size_t i = 0; i < f->n; i++) {
        ingot_picture_free(f->at[i]);
        mem_free(f->paths[i]);
    }
    mem_free(f->at);
    mem_free(f->paths);
    *f = (struct chat_pictures){ 0 };
}

// The line's first word as a shell reads it; how many bytes of the line it takes, 0 for a quote without an
// end.
static size_t first_word(struct str line, struct buf *word)
{
    char quote = line.n && (line.at[0] == '\'' || line.at[0] == '"') ? line.at[0] : 0;
    size_t i = quote != 0;

    for (; i < line.n && (quote ? line.at[i] != quote : line.at[i] != ' ' && line.at[i] != '\n'); i++) {
        i += !quote && line.at[i] == '\\' && i + 1 < line.n;
        buf_append(word, line.at + i, 1);
    }
    return quote && i == line.n ? 0 : i + (quote != 0);
}

static bool names_picture(const char *path, size_t n)
{
    static const char *const ends[] = { ".png", ".jpg", ".jpeg", ".webp" };

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (n > strlen(ends[i]) && !strcasecmp(path + n - strlen(ends[i]), ends[i]))
            return true;
    return false;
}

size_t chat_pictures_pasted(struct str line, char path[PICTURE_PATH_BYTES])
{
    struct buf word = { .max = PICTURE_PATH_BYTES - 1 };
    size_t n = first_word(line, &word);
    bool is = n && word.n && !word.failed && names_picture(word.at, word.n) && file_exists(word.at);

    if (is)
        memcpy(path, word.at, word.n + 1);
    buf_free(&word);
    return is ? n : 0;
}
