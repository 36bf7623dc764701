// buf.c - the growable buffer of str.h.
#include "base/str.h"
#include <stdarg.h>
#include <stdio.h>
#include "base/mem.h"

bool buf_reserve(struct buf *b, size_t n)
{
    size_t max = b->max ? b->max : (size_t)1 << 30;

    if (b->failed || n > max - b->n) {
        b->failed = true;
        return false;
    }
    if (b->n + n + 1 <= b->capacity)
        return true;
    size_t capacity = b->capacity * 2 > b->n + n + 1 ? b->capacity * 2 : b->n + n + 64;
    char *at = mem_realloc(b->at, capacity);
    if (!at) {
        b->failed = true;
        return false;
    }
    b->at = at;
    b->capacity = capacity;
    return true;
}

bool buf_append(struct buf *b, const void *bytes, size_t n)
{
    if (!buf_reserve(b, n))
        return false;
    if (n)
        memcpy(b->at + b->n, bytes, n);
    b->n += n;
    b->at[b->n] = 0;
    return true;
}

bool buf_str(struct buf *b, struct str text)
{
    return buf_append(b, text.at, text.n);
}

bool buf_text(struct buf *b, const char *text)
{
    return buf_append(b, text, strlen(text));
}

bool buf_printf(struct buf *b, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    bool ok = n >= 0 && buf_reserve(b, (size_t)n);
    if (ok) {
        vsnprintf(b->at + b->n, (size_t)n + 1, format, again);
        b->n += (size_t)n;
    }
    va_end(again);
    return ok;
}

void buf_free(struct buf *b)
{
    mem_free(b->at);
    *b = (struct buf){ 0 };
}
