// str.c - see str.h.
#include "base/str.h"
#include <errno.h>

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
        if (digit > 9 || __builtin_mul_overflow(v, (uint64_t)10, &v) ||
            __builtin_add_overflow(v, (uint64_t)digit, &v))
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

    if (text.n == 0 || text.n >= sizeof copy || memchr(text.at, 0, text.n) ||
        strchr(" \t\n\v\f\r+", text.at[0]))
        return false;
    memcpy(copy, text.at, text.n);
    copy[text.n] = 0;
    errno = 0;
    *value = strtod(copy, &end);
    return *end == 0 && errno == 0;
}
