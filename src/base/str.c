// str.c - see str.h.
#include "base/str.h"
#include <errno.h>
#include <stdarg.h>
#include "base/mem.h"

int str_order(struct str a, struct str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int order = n ? memcmp(a.at, b.at, n) : 0;
    return order ? (order > 0) - (order < 0) : (a.n > b.n) - (a.n < b.n);
}

size_t str_find(struct str text, struct str what)
{
    if (what.n == 0)
        return 0;
    const char *at = text.n < what.n ? NULL : memmem(text.at, text.n, what.at, what.n);
    return at ? (size_t)(at - text.at) : SIZE_MAX;
}

size_t str_find_last(struct str text, char c)
{
    size_t n = text.n;

    while (n > 0 && text.at[n - 1] != c)
        n--;
    return n > 0 ? n - 1 : SIZE_MAX;
}

bool str_to_u64(struct str text, uint64_t *value)
{
    uint64_t v = 0;

    if (text.n == 0)
        return false;
    for (size_t i = 0; i < text.n; i++) {
        unsigned digit = (unsigned char)text.at[i] - '0';
        if (digit > 9 || __builtin_mul_overflow(v, (uint64_t)10, &v) || __builtin_add_overflow(v, (uint64_t)digit, &v))
            return false;
    }
    *value = v;
    return true;
}

bool str_to_i64(struct str text, int64_t *value)
{
    bool negative = text.n && text.at[0] == '-';
    uint64_t v;

    if (!str_to_u64(negative ? str_from_to(text, 1, text.n) : text, &v) || v > (uint64_t)INT64_MAX + negative)
        return false;
    *value = negative ? (int64_t)(0 - v) : (int64_t)v;
    return true;
}

bool str_to_f64(struct str text, double *value)
{
    char copy[64], *end;

    if (text.n == 0 || text.n >= sizeof copy || memchr(text.at, 0, text.n) || strchr(" \t\n\v\f\r+", text.at[0]))
        return false;
    memcpy(copy, text.at, text.n);
    copy[text.n] = 0;
    errno = 0;
    *value = strtod(copy, &end);
    return *end == 0 && errno == 0;
}

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
