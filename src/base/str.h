// str.h - a slice of bytes, and a growable buffer with a stated maximum.
//
// A str does not own its bytes and need not end in NUL. Text is UTF-8 where it is text; nothing here assumes
// it is valid.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "base/err.h"

struct str {
    const char *at;
    size_t n;
};

#define STR(literal) ((struct str){ "" literal, sizeof(literal) - 1 })
#define STR_ARG(s)   (int)((s).n > 256 ? 256 : (s).n), (s).at // for "%.*s" in messages

// What a word takes behind a number: "s", but for one.
static inline const char *str_plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}
static inline struct str str_from(const char *text)
{
    return (struct str){ text, strlen(text) };
}
static inline bool str_eq(struct str a, struct str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.at, b.at, a.n) == 0);
}
static inline bool str_is(struct str a, const char *text)
{
    return str_eq(a, str_from(text));
}
static inline bool str_starts(struct str a, struct str prefix)
{
    return a.n >= prefix.n && (prefix.n == 0 || memcmp(a.at, prefix.at, prefix.n) == 0);
}
static inline bool str_ends(struct str a, struct str suffix)
{
    return a.n >= suffix.n && (suffix.n == 0 || memcmp(a.at + a.n - suffix.n, suffix.at, suffix.n) == 0);
}
// -1, 0 or 1: by bytes, then the shorter first.
int str_order(struct str a, struct str b);
static inline struct str str_from_to(struct str a, size_t from, size_t to)
{
    return (struct str){ a.at + from, to - from };
}
// Index of the first occurrence, or SIZE_MAX.
size_t str_find(struct str text, struct str what);
size_t str_find_last(struct str text, char c);

// Whole-string numbers: no white space, no trailing bytes, in range; false otherwise.
bool str_to_u64(struct str text, uint64_t *value);
bool str_to_i64(struct str text, int64_t *value);
bool str_to_f64(struct str text, double *value);

// A growable buffer. Zero-initialise, set max (0 = 1 GiB); buf_free at the end. After a failed append
// `failed` stays set and further appends do nothing, so that a chain of appends needs one check. `at` is
// always followed by a NUL byte.
struct buf {
    char *at;
    size_t n, capacity, max;
    bool failed;
};
bool buf_append(struct buf *b, const void *bytes, size_t n);
bool buf_str(struct buf *b, struct str text);
bool buf_text(struct buf *b, const char *text);
bool buf_printf(struct buf *b, const char *format, ...) PRINTF_LIKE(2, 3);
bool buf_reserve(struct buf *b, size_t n); // room for n more bytes
void buf_free(struct buf *b);
static inline struct str buf_as_str(const struct buf *b)
{
    return (struct str){ b->at ? b->at : "", b->n };
}
